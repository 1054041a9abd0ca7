import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS of one name node and one data node, below a folder; until standard input ends. */
public class NameNode {
    public static void main(String[] words) throws Exception {
        var cluster = new MiniDFSCluster.Builder(new Configuration(), new File(words[0]));
        try (var running = cluster.numDataNodes(1).build()) {
            running.waitActive();
            System.out.println("http port " + running.getNameNode().getHttpAddress().getPort());
            while (System.in.read() >= 0) {
            }
        }
    }
}
