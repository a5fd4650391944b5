import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.concurrent.Executors;
import javax.sql.DataSource;

/** Orders, executed at most once per idempotency key: the JDK's HTTP server and JDBC. */
public final class Service {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Keyed keyed;
    private final DataSource pool;

    private Service(DataSource pool) {
        this.pool = pool;
        this.keyed = new Keyed(pool);
    }

    private Answer create(HttpExchange exchange, String user, byte[] body) throws SQLException {
        var request = new Keyed.Request(user, "POST /orders", key(exchange.getRequestHeaders().get("Idempotency-Key")),
                exchange.getRequestMethod(), exchange.getRequestURI().getRawPath(), body);
        return keyed.execute(request, db -> order(db, user, body));
    }

    /** All lines of the header, or null: of two keys the extension says that they are not valid. */
    private static String key(List<String> lines) {
        return lines == null ? null : String.join(", ", lines);
    }

    private static Answer order(Connection db, String user, byte[] body) throws SQLException, Refused {
        var senseless = new Refused(Answer.json(400, "{\"error\": \"a JSON object with an item is wanted\"}"));
        String item = itemOf(body);
        if (item == null) throw senseless;
        try {
            long id;
            String insert = "INSERT INTO orders (owner, item, request) VALUES (?, ?, convert_from(?, 'UTF8')::json) RETURNING id";
            try (var statement = db.prepareStatement(insert)) {
                statement.setString(1, user);
                statement.setString(2, item);
                statement.setBytes(3, body);
                var row = statement.executeQuery();
                row.next();
                id = row.getLong(1);
            }
            try (var statement = db.prepareStatement("UPDATE stock SET pieces = pieces - 1 WHERE item = ?")) {
                statement.setString(1, item);
                statement.executeUpdate();
            }
            return Answer.json(201, "{\"order\": " + id + ", \"request\": ", body, "}").with("Location", "/orders/" + id);
        } catch (SQLException error) {
            String state = error.getSQLState() == null ? "" : error.getSQLState();
            if (state.startsWith("22")) throw senseless; // data exception: not UTF-8, for example
            if (!state.startsWith("23")) throw error; // integrity constraint violation
            throw new Refused(Answer.json(409, "{\"error\": \"not in stock\"}"));
        }
    }

    private Answer show(HttpExchange exchange, String user) throws SQLException {
        long id = Long.parseLong(exchange.getRequestURI().getPath().substring("/orders/".length()));
        try (var db = pool.getConnection();
                var statement = db.prepareStatement("SELECT request::text FROM orders WHERE id = ? AND owner = ?")) {
            statement.setLong(1, id);
            statement.setString(2, user);
            var row = statement.executeQuery();
            return row.next()
                    ? Answer.json(200, "{\"order\": " + id + ", \"request\": " + row.getString(1) + "}")
                    : Answer.json(404, "{\"error\": \"no such order\"}");
        }
    }

    private void handle(HttpExchange exchange) throws IOException {
        Answer answer;
        try {
            byte[] body = exchange.getRequestBody().readAllBytes();
            String user = user(exchange);
            answer = user == null ? Answer.json(401, "{\"error\": \"a bearer is wanted\"}")
                    : exchange.getRequestMethod().equals("POST") ? create(exchange, user, body)
                    : show(exchange, user);
        } catch (SQLException | RuntimeException error) {
            error.printStackTrace();
            answer = Answer.json(500, "{\"error\": \"try again\"}");
        }
        answer.headers().forEach((name, values) -> exchange.getResponseHeaders().put(name, values));
        exchange.sendResponseHeaders(answer.status(), answer.body().length == 0 ? -1 : answer.body().length);
        exchange.getResponseBody().write(answer.body());
        exchange.close();
    }

    /** Whoever the key belongs to. A real service checks the token. */
    private static String user(HttpExchange exchange) {
        String header = exchange.getRequestHeaders().getFirst("Authorization");
        return header != null && header.startsWith("Bearer ") ? header.substring("Bearer ".length()) : null;
    }

    private static String itemOf(byte[] body) {
        try {
            JsonNode item = JSON.readTree(body).path("item");
            return item.isTextual() ? item.textValue() : null;
        } catch (IOException notJson) {
            return null;
        }
    }

    /** JDBC wants user and password apart, and a scheme of its own. */
    private static DataSource pool(URI url) {
        String[] user = url.getUserInfo().split(":", 2);
        String options = url.getQuery() == null ? "" : "?" + url.getQuery();
        var pool = new HikariDataSource();
        pool.setJdbcUrl("jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath() + options);
        pool.setUsername(user[0]);
        pool.setPassword(user.length > 1 ? user[1] : null);
        pool.setMaximumPoolSize(8);
        pool.setMinimumIdle(1);
        return pool;
    }

    public static void main(String[] arguments) throws IOException {
        var service = new Service(pool(URI.create(System.getenv("DATABASE_URL"))));
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "0"));
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 64);
        server.createContext("/orders", service::handle);
        server.setExecutor(Executors.newFixedThreadPool(64));
        server.start();
        System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort());
    }
}
