package db2cdc;

import java.lang.reflect.Field;
import java.math.BigInteger;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.derby.iapi.sql.conn.LanguageConnectionContext;
import org.apache.derby.iapi.sql.conn.ConnectionUtil;
import org.apache.derby.iapi.store.access.TransactionInfo;

/** SQL functions of the sandbox's capture: who changed a row, in which order, and how that looks as a log position. */
public final class Capture {
    /** 2025-01-01T00:00:00Z: ticks count microseconds from here. */
    private static final long EPOCH_S = 1_735_689_600L;

    /** Derby hands its transaction ids out anew after a restart, so an id carries the second in which the JVM started. */
    private static final long BOOT = (Instant.now().getEpochSecond() - EPOCH_S) << 32;

    private static final AtomicLong LAST_TICK = new AtomicLong();

    private Capture() {}

    /** The id of the running transaction; only right inside a trigger: before its first write it still has an older one. */
    public static long transaction() throws SQLException {
        LanguageConnectionContext context = ConnectionUtil.getCurrentLCC();
        return BOOT | Long.parseLong(context.getTransactionExecute().getTransactionIdString());
    }

    /** The time in microseconds, moved up where needed so that no two calls get the same or a falling number. */
    public static long tick() {
        Instant now = Instant.now();
        long micros = (now.getEpochSecond() - EPOCH_S) * 1_000_000L + now.getNano() / 1_000;
        return LAST_TICK.updateAndGet(last -> Math.max(last + 1, micros));
    }

    /** Make every later tick greater than {@code seen}, whatever the clock says: it may have been set back while the server was down. */
    public static void raiseTick(long seen) {
        LAST_TICK.accumulateAndGet(seen, Math::max);
    }

    /** The local time of a tick, as CURRENT TIMESTAMP would have said it. */
    public static Timestamp tickTime(long tick) {
        long second = Math.floorDiv(tick, 1_000_000L);
        return Timestamp.from(Instant.ofEpochSecond(EPOCH_S + second, (tick - second * 1_000_000L) * 1_000));
    }

    /** The tick of a local time: the inverse of {@link #tickTime}. */
    public static long timeTick(Timestamp time) {
        Instant instant = time.toInstant();
        return (instant.getEpochSecond() - EPOCH_S) * 1_000_000L + instant.getNano() / 1_000;
    }

    /** What local time is ahead of UTC, as Db2's CURRENT TIMEZONE says it: hours, minutes and seconds as digits. */
    public static java.math.BigDecimal timezone() {
        int seconds = java.util.TimeZone.getDefault().getOffset(System.currentTimeMillis()) / 1_000;
        return java.math.BigDecimal.valueOf(seconds / 3600 * 10_000 + seconds / 60 % 60 * 100 + seconds % 60);
    }

    /** A log position of {@code width} bytes (10 or 16): the agent's round above, the tick in the low 7 or 8 bytes. */
    public static byte[] lsn(long round, long tick, int width) {
        int low = width < 16 ? 7 : 8;
        byte[] bytes = new byte[width];
        put(bytes, 0, width - low, round);
        put(bytes, width - low, width, tick);
        return bytes;
    }

    /** The round that {@link #lsn} put into a log position. */
    public static long lsnRound(byte[] lsn) {
        int low = lsn.length < 16 ? 7 : 8;
        return new BigInteger(1, java.util.Arrays.copyOf(lsn, lsn.length - low)).longValueExact();
    }

    /** The tick that {@link #lsn} put into a log position. */
    public static long lsnTick(byte[] lsn) {
        int low = lsn.length < 16 ? 7 : 8;
        return new BigInteger(1, java.util.Arrays.copyOfRange(lsn, lsn.length - low, lsn.length)).longValueExact();
    }

    /**
     * The transactions that have written and not ended.
     *
     * <p>SYSCS_DIAG.TRANSACTION_TABLE will not do: there a transaction stays active until after its locks are gone, so one that waited
     * for them could be seen ended before the one it waited for. Derby's own mark goes out when the end is logged, before the locks.
     * Looks until two looks agree: whatever had to end before one of the ended has then ended too.
     */
    static Set<Long> writers() throws SQLException {
        Set<Long> writers = look();
        for (Set<Long> before = null; !writers.equals(before); ) {
            before = new HashSet<>(writers);
            writers.retainAll(look());
        }
        return writers;
    }

    /** Debezium's control function for the agent: whatever is asked, the sandbox's agent is at work. */
    public static String services(String command, String service) {
        return "status".equals(command) ? "The capture program (db2cdc sandbox) is doing work." : "The command was processed.";
    }

    private static Set<Long> look() throws SQLException {
        Set<Long> writers = new HashSet<>();
        try {
            TransactionInfo[] all = ConnectionUtil.getCurrentLCC().getTransactionExecute().getAccessManager().getTransactionInfo();
            for (TransactionInfo one : all) {
                if (field(one, "update").getBoolean(one)) {
                    writers.add(BOOT | Long.parseLong(field(one, "xid").get(one).toString()));
                }
            }
        } catch (ReflectiveOperationException e) {
            throw new SQLException("this Derby keeps its transaction table another way than 10.16: use the version the sandbox asks for", e);
        }
        return writers;
    }

    private static Field field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    private static void put(byte[] bytes, int from, int upto, long number) throws IllegalArgumentException {
        long rest = number;
        for (int at = upto - 1; at >= from; at--, rest >>>= 8) {
            bytes[at] = (byte) rest;
        }
        if (rest != 0) {
            throw new IllegalArgumentException("log position overflow: " + number + " in " + (upto - from) + " bytes");
        }
    }
}
