package db2cdc;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.derby.iapi.sql.conn.ConnectionUtil;
import org.apache.derby.iapi.store.access.StoreCostController;
import org.apache.derby.iapi.store.access.TransactionController;
import org.apache.derby.shared.common.error.StandardException;

/** SQL functions that say in SYSCAT's terms what Derby's catalog holds as objects: column types and index columns, as text. */
public final class Catalog {
    private static final Pattern TYPE = Pattern.compile(
            "(.+?) ?(?:\\((\\d+)(?:,(\\d+))?\\))?( FOR BIT DATA)?(?: NOT NULL)?", Pattern.DOTALL);
    private static final Pattern KEY = Pattern.compile("(\\d+)( DESC)?");
    private static final Map<String, String> NAMES = Map.of("CHAR", "CHARACTER", "NUMERIC", "DECIMAL");
    private static final Map<String, Integer> LENGTHS = Map.ofEntries(
            Map.entry("SMALLINT", 2), Map.entry("INTEGER", 4), Map.entry("BIGINT", 8), Map.entry("REAL", 4), Map.entry("DOUBLE", 8),
            Map.entry("DATE", 4), Map.entry("TIME", 3), Map.entry("TIMESTAMP", 10), Map.entry("BOOLEAN", 1),
            Map.entry("LONG VARCHAR", 32700));

    private Catalog() {}

    /** SYSCAT.COLUMNS.TYPENAME. */
    public static String typeName(String type) {
        String name = parsed(type).group(1);
        return NAMES.getOrDefault(name, name);
    }

    /** SYSCAT.COLUMNS.LENGTH: characters or bytes, a decimal's precision, the stored width of other numbers and times. */
    public static int typeLength(String type) {
        Matcher parts = parsed(type);
        return parts.group(2) == null ? LENGTHS.getOrDefault(parts.group(1), 0) : Integer.parseInt(parts.group(2));
    }

    /** SYSCAT.COLUMNS.SCALE: a decimal's digits after the point, a timestamp's of a second. */
    public static int typeScale(String type) {
        Matcher parts = parsed(type);
        return parts.group(1).equals("TIMESTAMP") ? 6 : parts.group(3) == null ? 0 : Integer.parseInt(parts.group(3));
    }

    /** SYSCAT.COLUMNS.CODEPAGE: 1208 (UTF-8) of character data, 0 of everything else, FOR BIT DATA included. */
    public static int codePage(String type) {
        Matcher parts = parsed(type);
        return parts.group(4) == null && (parts.group(1).contains("CHAR") || parts.group(1).equals("CLOB")) ? 1208 : 0;
    }

    /** The place (from 1) of a column (from 1) in an index such as "UNIQUE BTREE (4 DESC, 3)", or 0. */
    public static int keyPosition(String index, int column) {
        Matcher keys = keys(index);
        for (int at = 1; keys.find(); at++) {
            if (Integer.parseInt(keys.group(1)) == column) {
                return at;
            }
        }
        return 0;
    }

    /** SYSCAT.INDEXCOLUSE.COLORDER: A or D. */
    public static String keyOrder(String index, int column) {
        Matcher keys = keys(index);
        while (keys.find()) {
            if (Integer.parseInt(keys.group(1)) == column) {
                return keys.group(2) == null ? "A" : "D";
            }
        }
        return " ";
    }

    /** SYSCAT.INDEXES.COLCOUNT. */
    public static int keyCount(String index) {
        return (int) keys(index).results().count();
    }

    /** SYSCAT.INDEXES.COLNAMES: each column's name after a + or a -. */
    public static String keyNames(String tableId, String index) throws SQLException {
        List<String> columns = columns(tableId);
        StringBuilder names = new StringBuilder();
        Matcher keys = keys(index);
        while (keys.find()) {
            names.append(keys.group(2) == null ? '+' : '-').append(columns.get(Integer.parseInt(keys.group(1)) - 1));
        }
        return names.toString();
    }

    /** SYSCAT.TABLES.CARD: Derby's estimate of the rows in a table's heap, -1 if it has none. */
    public static long rowCount(long conglomerate) throws SQLException {
        try {
            TransactionController transaction = ConnectionUtil.getCurrentLCC().getTransactionExecute();
            StoreCostController cost = transaction.openStoreCost(conglomerate);
            long rows = cost.getEstimatedRowCount();
            cost.close();
            return rows;
        } catch (StandardException e) {
            return -1;
        }
    }

    /** The start of the server that made the object of this id: Derby keeps no better time of creation. */
    public static Timestamp createTime(String id) {
        // Derby's ids of one start share its time; their number, as microseconds, tells tables of one name apart.
        long micros = Long.parseLong(id.substring(0, 8), 16);
        Timestamp time = new Timestamp(Long.parseLong(id.substring(9, 23).replace("-", ""), 16) + micros / 1000);
        time.setNanos(time.getNanos() + (int) (micros % 1000) * 1000);
        return time;
    }

    private static List<String> columns(String tableId) throws SQLException {
        List<String> names = new ArrayList<>();
        String select = "SELECT COLUMNNAME FROM SYS.SYSCOLUMNS WHERE REFERENCEID = ? ORDER BY COLUMNNUMBER";
        try (Connection connection = DriverManager.getConnection("jdbc:default:connection");
                PreparedStatement statement = connection.prepareStatement(select)) {
            statement.setString(1, tableId);
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    names.add(rows.getString(1));
                }
            }
        }
        return names;
    }

    private static Matcher keys(String index) {
        return KEY.matcher(index.substring(index.indexOf('(')));
    }

    private static Matcher parsed(String type) {
        Matcher parts = TYPE.matcher(type);
        if (!parts.matches()) {
            throw new IllegalArgumentException("not a column type: " + type);
        }
        return parts;
    }
}
