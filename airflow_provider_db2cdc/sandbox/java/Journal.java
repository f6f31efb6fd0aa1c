package db2cdc;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import org.apache.derby.catalog.UUID;
import org.apache.derby.iapi.sql.conn.ConnectionUtil;
import org.apache.derby.iapi.sql.conn.LanguageConnectionContext;
import org.apache.derby.iapi.sql.dictionary.DataDictionary;
import org.apache.derby.iapi.sql.dictionary.SPSDescriptor;
import org.apache.derby.iapi.sql.dictionary.TriggerDescriptor;
import org.apache.derby.shared.common.error.StandardException;

/** Procedures over the journals that plain SQL has no way to say. */
public final class Journal {
    private Journal() {}

    /**
     * Delete the rows of this round's ended transactions from a journal.
     *
     * <p>One statement per transaction, which goes through the index: a joined DELETE scans the table and waits for open transactions.
     */
    public static void forget(int journal) throws SQLException {
        try (Connection connection = DriverManager.getConnection("jdbc:default:connection");
                PreparedStatement ended = connection.prepareStatement("SELECT TXN FROM SANDBOX.ENDED WHERE JOURNAL = ?");
                PreparedStatement rows = connection.prepareStatement("DELETE FROM SANDBOX.J" + journal + " WHERE IBMSNAP_TXN = ?")) {
            ended.setInt(1, journal);
            try (ResultSet transactions = ended.executeQuery()) {
                while (transactions.next()) {
                    rows.setLong(1, transactions.getLong(1));
                    rows.executeUpdate();
                }
            }
        }
    }

    /**
     * Compile each trigger that is not, and keep statistics from being gathered in the background, which undoes it.
     *
     * <p>A trigger left for the next writer to compile makes that writer's whole transaction about twenty times slower: until it
     * commits Derby reads its dictionary from disk at every firing.
     */
    public static void compileTriggers() throws SQLException {
        LanguageConnectionContext context = ConnectionUtil.getCurrentLCC();
        DataDictionary dictionary = context.getDataDictionary();
        dictionary.disableIndexStatsRefresher();
        try (Connection connection = DriverManager.getConnection("jdbc:default:connection");
                PreparedStatement stale = connection.prepareStatement(
                        "SELECT TG.TRIGGERID FROM SYS.SYSTRIGGERS TG JOIN SYS.SYSSTATEMENTS S ON S.STMTID = TG.ACTIONSTMTID"
                                + " WHERE S.VALID = FALSE");
                ResultSet triggers = stale.executeQuery()) {
            while (triggers.next()) {
                UUID id = dictionary.getUUIDFactory().recreateUUID(triggers.getString(1));
                TriggerDescriptor trigger = dictionary.getTriggerDescriptor(id);
                SPSDescriptor action = trigger.getActionSPS(context);
                action.getPreparedStatement();
            }
        } catch (StandardException e) {
            throw new SQLException("a trigger does not compile: " + e.getMessage(), e.getSQLState(), e);
        }
    }
}
