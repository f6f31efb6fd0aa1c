package db2cdc;

import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import org.apache.derby.vti.VTITemplate;

/** Numbers as the rows of a one-column table function. */
public final class LongRows extends VTITemplate {
    private final Iterator<Long> rows;
    private long current;

    LongRows(Collection<Long> rows) {
        this.rows = List.copyOf(rows).iterator();
    }

    @Override
    public boolean next() {
        boolean more = rows.hasNext();
        if (more) {
            current = rows.next();
        }
        return more;
    }

    @Override
    public long getLong(int column) {
        return current;
    }

    @Override
    public boolean wasNull() {
        return false;
    }

    @Override
    public void close() {}
}
