import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What the client is sent: the bytes as they are. */
record Answer(int status, Map<String, List<String>> headers, byte[] body) {
    private static final ObjectMapper JSON =
            new ObjectMapper().enable(DeserializationFeature.ACCEPT_SINGLE_VALUE_AS_ARRAY);

    /** The body is made of texts and of bytes that are not looked into. */
    static Answer json(int status, Object... parts) {
        var body = new ByteArrayOutputStream();
        for (Object part : parts) {
            body.writeBytes(part instanceof byte[] bytes ? bytes : part.toString().getBytes(StandardCharsets.UTF_8));
        }
        return new Answer(status, Map.of(), body.toByteArray()).with("Content-Type", "application/json");
    }

    Answer with(String name, String value) {
        var all = new TreeMap<>(headers);
        all.put(name, List.of(value));
        return new Answer(status, all, body);
    }

    /** A row that claim or complete returned; a header is a string or an array of strings. */
    static Answer of(ResultSet row) throws SQLException {
        try {
            String json = row.getString("headers");
            Map<String, List<String>> headers =
                    json == null ? Map.of() : JSON.readValue(json, new TypeReference<>() {});
            byte[] body = row.getBytes("body");
            return new Answer(row.getInt("status"), headers, body == null ? new byte[0] : body);
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    String headersAsJson() {
        try {
            return JSON.writeValueAsString(headers);
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
