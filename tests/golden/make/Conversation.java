// The loop of all drivers here: one JSON command per line of standard input, one JSON answer per line of standard
// output; what else prints there goes to standard error. java_client.py is at the other end.
import com.fasterxml.jackson.databind.*;
import java.io.*;

final class Conversation {
    interface Handler { JsonNode handle(JsonNode command) throws Exception; }

    static void hold(Handler handler) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode r;
            try { r = handler.handle(mapper.readTree(line)); }
            catch (Throwable t) {
                StringWriter w = new StringWriter();
                t.printStackTrace(new PrintWriter(w));
                r = mapper.createObjectNode().put("exception", w.toString());
            }
            out.println(mapper.writeValueAsString(r));
            out.flush();
        }
    }
}
