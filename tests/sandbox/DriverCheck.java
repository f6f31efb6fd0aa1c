import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.HexFormat;
import java.util.concurrent.CountDownLatch;

/** What IBM's JDBC driver finds on the sandbox, one name=value a line. */
public class DriverCheck {
    private static String url;
    private static String user;
    private static String password;

    public static void main(String[] arguments) throws Exception {
        url = arguments[0];
        user = arguments[1];
        password = arguments[2];
        switch (arguments[3]) {
            case "types" -> types();
            default -> throw new IllegalArgumentException(arguments[3]);
        }
    }

    private static void types() throws Exception {
        try (Connection connection = DriverManager.getConnection(url, user, password);
                Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE JCC_TYPES (ID INT NOT NULL PRIMARY KEY, A VARCHAR(40), "
                    + "B VARCHAR(16) FOR BIT DATA, C TIMESTAMP, D DECIMAL(31,5), E BIGINT, F CHAR(6), G DATE, H CLOB(1M), I BLOB(1M))");
            insert(connection);
            readLobsWithFetchSize(connection);
            readBack(connection);
            scroll(connection);
            longStatement(statement);
            connection.setAutoCommit(true); // JCC refuses to close a connection with a transaction in progress
        }
        threeAtOnce();
        wrongPassword();
    }

    private static void insert(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO JCC_TYPES VALUES (?,?,?,?,?,?,?,?,?,?)")) {
            for (int id = 0; id < 500; id++) {
                insert.setInt(1, id);
                insert.setString(2, "Zażółć 東京 " + id);
                insert.setBytes(3, new byte[] {0, (byte) 0xff, (byte) id});
                insert.setTimestamp(4, Timestamp.valueOf("9999-12-31 23:59:59.999999"));
                insert.setBigDecimal(5, new BigDecimal("12345678901234567890123456.78901"));
                insert.setLong(6, Long.MIN_VALUE);
                insert.setString(7, "ab");
                insert.setDate(8, Date.valueOf("0001-01-01"));
                insert.setString(9, id == 7 ? "c".repeat(200_000) : "small");
                insert.setBytes(10, id == 7 ? new byte[100_000] : null);
                insert.addBatch();
            }
            insert.executeBatch();
        }
        connection.commit();
    }

    private static void readLobsWithFetchSize(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(100);
            ResultSet rows = statement.executeQuery("SELECT ID, H, I FROM JCC_TYPES");
            int count = 0;
            long characters = 0;
            long bytes = 0;
            while (rows.next()) {
                count++;
                characters += rows.getString(2).length();
                bytes += rows.getBytes(3) == null ? 0 : rows.getBytes(3).length;
            }
            System.out.println("lob_rows=" + count);
            System.out.println("lob_characters=" + characters);
            System.out.println("lob_bytes=" + bytes);
        }
    }

    private static void readBack(Connection connection) throws SQLException {
        try (PreparedStatement query = connection.prepareStatement("SELECT * FROM JCC_TYPES WHERE ID = ? WITH UR")) {
            query.setFetchSize(50);
            query.setInt(1, 3);
            ResultSet row = query.executeQuery();
            row.next();
            System.out.println("varchar=" + row.getString(2));
            System.out.println("bits=" + HexFormat.of().formatHex(row.getBytes(3)));
            System.out.println("timestamp=" + row.getTimestamp(4));
            System.out.println("decimal=" + row.getBigDecimal(5));
            System.out.println("bigint=" + row.getLong(6));
            System.out.println("char=" + row.getString(7) + "|");
            System.out.println("date=" + row.getDate(8));
            System.out.println("type_of_bits=" + (row.getMetaData().getColumnType(3) == Types.VARBINARY));
        }
    }

    private static void scroll(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
            statement.setFetchSize(20);
            ResultSet rows = statement.executeQuery("SELECT ID FROM JCC_TYPES ORDER BY ID");
            rows.last();
            int last = rows.getInt(1);
            rows.absolute(5);
            System.out.println("scrolled=" + last + "," + rows.getInt(1));
        }
    }

    private static void longStatement(Statement statement) throws SQLException {
        String sql = "SELECT CURRENT SERVER FROM SYSIBM.SYSDUMMY1 WHERE 'CURRENT SERVER' <> '' " + " ".repeat(200_000) + "WITH UR";
        ResultSet row = statement.executeQuery(sql);
        row.next();
        System.out.println("long_statement=" + row.getString(1));
    }

    private static void threeAtOnce() throws Exception {
        int[] counts = new int[3];
        CountDownLatch connected = new CountDownLatch(counts.length);
        Thread[] threads = new Thread[counts.length];
        for (int number = 0; number < counts.length; number++) {
            int mine = number;
            threads[number] = new Thread(() -> counts[mine] = countRows(connected));
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("three_at_once=" + counts[0] + "," + counts[1] + "," + counts[2]);
    }

    private static int countRows(CountDownLatch connected) {
        try (Connection connection = DriverManager.getConnection(url, user, password);
                Statement statement = connection.createStatement()) {
            connected.countDown();
            connected.await();
            statement.setFetchSize(10);
            ResultSet rows = statement.executeQuery("SELECT ID, A FROM JCC_TYPES WHERE ID < 300");
            int count = 0;
            while (rows.next()) {
                count++;
            }
            return count;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void wrongPassword() {
        try {
            DriverManager.getConnection(url, user, "wrong").close();
            System.out.println("wrong_password=accepted");
        } catch (SQLException error) {
            System.out.println("wrong_password=" + error.getSQLState());
        }
    }
}
