import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command line tools one after the other in one JVM, since starting a JVM costs more than most tools do.
 *
 * A request is a line of fields in base64: a main class, its standard input, its arguments. A reply is a line: an exit code, what went to
 * standard output and what went to standard error, in base64.
 */
public class ToolServer {
    private static class Exited extends Error {
        Exited(int code) {
            super("exit code " + code, null, false, false);
        }
    }

    // Of the tool that runs: some write their last messages when the JVM ends.
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer code;

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        PrintStream replies = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split(" ", -1);
            for (int i = 0; i < fields.length; i++) {
                fields[i] = new String(Base64.getDecoder().decode(fields[i]), StandardCharsets.UTF_8);
            }
            replies.println(run(fields[0], fields[1], Arrays.copyOfRange(fields, 2, fields.length)));
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void exit(int status) {
        // Tools may catch what is thrown here, and exit once more: the first one is what a shell would see.
        if (code == null) {
            code = status;
        }
        throw new Exited(status);
    }

    private static String run(String mainClass, String input, String[] arguments) {
        ByteArrayOutputStream shown = new ByteArrayOutputStream();
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        code = null;
        HOOKS.clear();
        System.setOut(new PrintStream(shown, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        try {
            runMain(mainClass, arguments);
            HOOKS.forEach(Runnable::run);
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            code = 1;
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        return (code == null ? 0 : code) + " " + encoded(shown) + " " + encoded(said);
    }

    private static void runMain(String mainClass, String[] arguments) throws ReflectiveOperationException {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                code = code == null ? 1 : code;
            }
        }
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
