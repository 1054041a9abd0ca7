import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Map;

/** One measure: `round` is what is timed, `check` gives its results in full. */
interface Measure {
    ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** Get ready for a round; not timed. */
    default void prepare() throws Exception { }

    /** CPU time so far of all threads that a round uses. */
    default long cpuNanos() {
        return THREADS.getCurrentThreadCpuTime();
    }

    /** Returns a number that depends on all the work, so that none can be left out. */
    long round() throws Exception;

    Map<String, Object> check() throws Exception;
}
