import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Set;
import javax.sql.DataSource;

/** Requests that are executed at most once: claim, work, complete, in one transaction. */
final class Keyed {
    /** Serialization failure, deadlock: the whole transaction is made again, from its claim. */
    private static final Set<String> RETRIED = Set.of("40001", "40P01");

    private static final String CLAIM =
            "SELECT * FROM idempotency_claim(?, ?, ?, idempotency_fingerprint(?, ?, body_bytes => ?))";
    private static final String COMPLETE =
            "SELECT * FROM idempotency_complete(?, body_bytes => ?, headers => ?::jsonb)";

    record Request(String scope, String operation, String key, String method, String path, byte[] body) {}

    /** May be done several times, but only one of them is committed. */
    interface Work {
        Answer in(Connection db) throws SQLException, Refused;
    }

    private final DataSource pool;

    Keyed(DataSource pool) {
        this.pool = pool;
    }

    /** Has the work executed at most once. Returns what to send. */
    Answer execute(Request request, Work work) throws SQLException {
        for (int attempt = 1; ; attempt++) {
            try (var db = pool.getConnection()) {
                return attempt(db, request, work);
            } catch (SQLException error) {
                if (attempt == 3 || !RETRIED.contains(error.getSQLState())) throw error;
            }
        }
    }

    private static Answer attempt(Connection db, Request request, Work work) throws SQLException {
        db.setAutoCommit(false); // the pool sets it back, and rolls back what is not committed
        try (var claim = db.prepareStatement(CLAIM); var complete = db.prepareStatement(COMPLETE)) {
            ResultSet answer = claim(claim, request);
            if (Set.of("claimed", "bypassed").contains(answer.getString("outcome"))) {
                answer = complete(complete, inSavepoint(db, work));
            }
            // Released is not kept: its effects go, and a retry is executed.
            Answer sent = Answer.of(answer);
            if (answer.getString("outcome").equals("released")) db.rollback();
            else db.commit();
            return sent;
        }
    }

    private static Answer inSavepoint(Connection db, Work work) throws SQLException {
        var savepoint = db.setSavepoint();
        try {
            return work.in(db);
        } catch (Refused refused) {
            db.rollback(savepoint);
            return refused.answer;
        }
    }

    private static ResultSet claim(PreparedStatement claim, Request request) throws SQLException {
        claim.setString(1, request.scope());
        claim.setString(2, request.operation());
        claim.setString(3, request.key());
        claim.setString(4, request.method());
        claim.setString(5, request.path());
        claim.setBytes(6, request.body());
        return only(claim);
    }

    private static ResultSet complete(PreparedStatement complete, Answer answer) throws SQLException {
        complete.setInt(1, answer.status());
        complete.setBytes(2, answer.body());
        complete.setString(3, answer.headersAsJson());
        return only(complete);
    }

    private static ResultSet only(PreparedStatement statement) throws SQLException {
        ResultSet row = statement.executeQuery();
        row.next();
        return row;
    }
}
