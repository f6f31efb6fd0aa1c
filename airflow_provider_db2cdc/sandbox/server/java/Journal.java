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

    /** Take the transactions that are still writing out of ENDED. */
    public static void excludeWriters() throws SQLException {
        try (Connection connection = DriverManager.getConnection("jdbc:default:connection");
                PreparedStatement exclusion = connection.prepareStatement("DELETE FROM SANDBOX.ENDED WHERE TXN = ?")) {
            for (long writer : Capture.writers()) {
                exclusion.setLong(1, writer);
                exclusion.executeUpdate();
            }
        }
    }

    /**
     * Delete the rows of this round's transactions from a journal.
     *
     * <p>One statement per transaction, which goes through the index: a joined DELETE scans the table and waits for open transactions.
     */
    public static void forget(int journal) throws SQLException {
        try (Connection connection = DriverManager.getConnection("jdbc:default:connection");
                PreparedStatement parts = connection.prepareStatement("SELECT TXN FROM SANDBOX.PART WHERE JOURNAL = ?");
                PreparedStatement rows = connection.prepareStatement("DELETE FROM SANDBOX.J" + journal + " WHERE IBMSNAP_TXN = ?")) {
            parts.setInt(1, journal);
            try (ResultSet transactions = parts.executeQuery()) {
                while (transactions.next()) {
                    rows.setLong(1, transactions.getLong(1));
                    rows.executeUpdate();
                }
            }
        }
    }

    /**
     * Make the server fit for capture; lasts until it is restarted.
     *
     * <p>Updates keep their locks (see {@link UpdateLocks}), and statistics are not gathered in the background: that undoes the
     * compilation of triggers.
     */
    public static void prepareServer() throws SQLException {
        UpdateLocks.keep();
        ConnectionUtil.getCurrentLCC().getDataDictionary().disableIndexStatsRefresher();
    }

    /**
     * Compile each trigger that is not.
     *
     * <p>A trigger left for the next writer to compile makes that writer's whole transaction about twenty times slower: until it
     * commits Derby reads its dictionary from disk at every firing.
     */
    public static void compileTriggers() throws SQLException {
        LanguageConnectionContext context = ConnectionUtil.getCurrentLCC();
        DataDictionary dictionary = context.getDataDictionary();
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
