// Round trips over Aeron IPC, as the peer of the benchmark "spinning": run by java from its source, with Aeron's jar.
//
//   java -cp aeron-all.jar AeronPing.java echo DIR          starts a media driver in DIR and sends back what comes
//   java -cp aeron-all.jar AeronPing.java ping DIR BYTES    prints the median of a round trip in microseconds
//
// Both keep looking (no idle strategy), each on the processor that it was started on. The driver is not in the way of an
// IPC message; its one thread sleeps between its rounds.

import io.aeron.Aeron;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import java.util.Arrays;
import org.agrona.concurrent.SleepingIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

public class AeronPing {
    static final String CHANNEL = "aeron:ipc?term-length=1m";
    static final int THERE = 1;
    static final int BACK = 2;

    public static void main(String[] arguments) {
        if (arguments[0].equals("echo")) {
            echo(arguments[1]);
        } else {
            ping(arguments[1], Integer.parseInt(arguments[2]));
        }
    }

    static void echo(String directory) {
        MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName(directory)
            .dirDeleteOnStart(true)
            // A message of 16 KiB is one fragment then, as the two ends below take it.
            .ipcMtuLength(32 * 1024)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(new SleepingIdleStrategy(1_000_000));
        MediaDriver.launch(context);
        Aeron aeron = connect(directory);
        Publication back = aeron.addExclusivePublication(CHANNEL, BACK);
        Subscription there = aeron.addSubscription(CHANNEL, THERE);
        FragmentHandler answer = (buffer, offset, length, header) -> {
            while (back.offer(buffer, offset, length) < 0) {
                Thread.onSpinWait();
            }
        };
        while (true) {
            if (there.poll(answer, 1) == 0) {
                Thread.onSpinWait();
            }
        }
    }

    static void ping(String directory, int bytes) {
        Aeron aeron = connect(directory);
        Publication there = aeron.addExclusivePublication(CHANNEL, THERE);
        Subscription back = aeron.addSubscription(CHANNEL, BACK);
        while (!there.isConnected() || !back.isConnected()) {
            Thread.onSpinWait();
        }
        UnsafeBuffer message = new UnsafeBuffer(new byte[bytes]);
        FragmentHandler ignore = (buffer, offset, length, header) -> { };
        long[] times = new long[1 << 20];
        // The first second is for the compiler.
        long warm = System.nanoTime() + 1_500_000_000L;
        long end = warm + 1_000_000_000L;
        int count = 0;
        while (count < times.length) {
            long began = System.nanoTime();
            while (there.offer(message) < 0) {
                Thread.onSpinWait();
            }
            while (back.poll(ignore, 1) == 0) {
                Thread.onSpinWait();
            }
            long now = System.nanoTime();
            if (now > end) {
                break;
            }
            if (now > warm) {
                times[count++] = now - began;
            }
        }
        Arrays.sort(times, 0, count);
        System.out.println(times[count / 2] / 1000.0);
        System.exit(0);
    }

    static Aeron connect(String directory) {
        return Aeron.connect(new Aeron.Context().aeronDirectoryName(directory));
    }
}
