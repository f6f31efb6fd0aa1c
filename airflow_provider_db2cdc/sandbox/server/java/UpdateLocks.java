package db2cdc;

import java.lang.reflect.Field;
import java.sql.SQLException;
import org.apache.derby.iapi.sql.conn.ConnectionUtil;
import org.apache.derby.iapi.store.access.TransactionController;
import org.apache.derby.iapi.store.raw.ContainerHandle;
import org.apache.derby.iapi.store.raw.LockingPolicy;
import org.apache.derby.iapi.store.raw.RecordHandle;
import org.apache.derby.iapi.store.raw.Transaction;
import org.apache.derby.impl.store.access.RAMAccessManager;
import org.apache.derby.shared.common.error.StandardException;

/**
 * Cursor stability whose updates keep the lock of a row they have read until they change it.
 *
 * <p>On a table with AFTER triggers Derby changes rows in a second pass, from what the first one has read. In between it has let
 * go of the row: another transaction's update of it is lost, and the old image that the trigger gets is not the one that was
 * there. Reading stays as it was.
 */
public final class UpdateLocks implements LockingPolicy {
    private final LockingPolicy reads;
    private final LockingPolicy updates;

    private UpdateLocks(LockingPolicy reads, LockingPolicy updates) {
        this.reads = reads;
        this.updates = updates;
    }

    /** Put this policy in the place of the database's own, if that has not been done since the server started. */
    public static void keep() throws SQLException {
        try {
            Object store = ConnectionUtil.getCurrentLCC().getTransactionExecute().getAccessManager();
            Field field = RAMAccessManager.class.getDeclaredField("record_level_policy");
            field.setAccessible(true);
            LockingPolicy[] rows = (LockingPolicy[]) field.get(store);
            LockingPolicy present = rows[TransactionController.ISOLATION_READ_COMMITTED];
            if (!(present instanceof UpdateLocks)) {
                rows[TransactionController.ISOLATION_READ_COMMITTED] =
                        new UpdateLocks(present, rows[TransactionController.ISOLATION_REPEATABLE_READ]);
            }
        } catch (ReflectiveOperationException | ClassCastException e) {
            throw new SQLException("this Derby keeps its locking policies another way than 10.16: use the version the sandbox asks for", e);
        }
    }

    @Override
    public boolean lockRecordForRead(Transaction t, ContainerHandle container, RecordHandle record, boolean wait, boolean forUpdate)
            throws StandardException {
        return (forUpdate ? updates : reads).lockRecordForRead(t, container, record, wait, forUpdate);
    }

    @Override
    public void unlockRecordAfterRead(Transaction t, ContainerHandle container, RecordHandle record, boolean forUpdate, boolean qualified)
            throws StandardException {
        // index scans call every row unqualified, so an update keeps those as well that it has looked at and left alone
        if (!forUpdate) {
            reads.unlockRecordAfterRead(t, container, record, false, qualified);
        }
    }

    @Override
    public boolean lockContainer(Transaction t, ContainerHandle container, boolean wait, boolean forUpdate) throws StandardException {
        return reads.lockContainer(t, container, wait, forUpdate);
    }

    @Override
    public void unlockContainer(Transaction t, ContainerHandle container) {
        reads.unlockContainer(t, container);
    }

    @Override
    public boolean zeroDurationLockRecordForWrite(Transaction t, RecordHandle record, boolean lockForPreviousKey, boolean wait)
            throws StandardException {
        return reads.zeroDurationLockRecordForWrite(t, record, lockForPreviousKey, wait);
    }

    @Override
    public boolean lockRecordForWrite(Transaction t, RecordHandle record, boolean lockForInsert, boolean wait) throws StandardException {
        return reads.lockRecordForWrite(t, record, lockForInsert, wait);
    }

    @Override
    public int getMode() {
        return reads.getMode();
    }
}
