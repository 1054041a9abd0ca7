import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, of the version on the class path, one after the other.
 *
 * Reads requests from standard input, one a line, fields apart by tabs: a tool's main class, then its arguments.
 * Prints one answer a line: the exit code, and what the tool printed, both outputs as one, in base64.
 */
public class KafkaTools {
    private static final int UNCAUGHT = 1;

    private static volatile CompletableFuture<Integer> exited;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, action) -> { });
        // Scala's console keeps the streams that it finds first.
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, "UTF-8");
        System.setOut(capture);
        System.setErr(capture);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] request = line.split("\t", -1);
            printed.reset();
            int code = run(request[0], Arrays.copyOfRange(request, 1, request.length));
            capture.flush();
            answers.println(code + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
        }
        Runtime.getRuntime().halt(0);
    }

    /** Runs a tool in a thread of its own, which an exit ends instead of the process. */
    private static int run(String name, String[] arguments) throws Exception {
        Method main = Class.forName(name).getMethod("main", String[].class);
        CompletableFuture<Integer> code = new CompletableFuture<>();
        exited = code;
        Thread thread = new Thread(() -> {
            try {
                main.invoke(null, (Object) arguments);
                code.complete(0);
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                code.complete(UNCAUGHT);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return code.get();
    }

    /** Never returns: some tools would catch an exception and exit once more. */
    private static void end(int code) {
        exited.complete(code);
        while (true) {
            LockSupport.park();
        }
    }
}
