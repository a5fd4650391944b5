package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/lib/pq"
)

// Answer is what the client is sent: the bytes as they are.
type Answer struct {
	Status  int
	Headers map[string][]string
	Body    []byte
}

// Refused is a final answer whose effects are undone.
type Refused struct{ *Answer }

func (Refused) Error() string { return "refused" }

// Keyed has the work executed at most once, and returns what to send. The work may be done several
// times, but only one of them is committed.
func Keyed(db *sql.DB, r *http.Request, scope, operation string, body []byte,
	work func(*sql.Tx) (*Answer, error)) (*Answer, error) {
	for attempt := 1; ; attempt++ {
		answer, err := attempted(db, r, scope, operation, body, work)
		// Serialization failure, deadlock: the whole transaction is made again, from its claim.
		if code := sqlstate(err); attempt == 3 || (code != "40001" && code != "40P01") {
			return answer, err
		}
	}
}

func attempted(db *sql.DB, r *http.Request, scope, operation string, body []byte,
	work func(*sql.Tx) (*Answer, error)) (*Answer, error) {
	tx, err := db.BeginTx(r.Context(), nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // does nothing behind a commit
	outcome, answer, err := call(tx,
		"idempotency_claim($1, $2, $3, idempotency_fingerprint($4, $5, body_bytes => $6))",
		scope, operation, key(r), r.Method, r.URL.EscapedPath(), body)
	if err == nil && (outcome == "claimed" || outcome == "bypassed") {
		if answer, err = inSavepoint(tx, work); err != nil {
			return nil, err
		}
		headers, _ := json.Marshal(answer.Headers)
		outcome, answer, err = call(tx, "idempotency_complete($1, body_bytes => $2, headers => $3)",
			answer.Status, answer.Body, string(headers))
	}
	if err == nil && outcome != "released" { // released is not kept: its effects go, and a retry is executed
		err = tx.Commit()
	}
	return answer, err
}

func inSavepoint(tx *sql.Tx, work func(*sql.Tx) (*Answer, error)) (*Answer, error) {
	if _, err := tx.Exec("SAVEPOINT work"); err != nil {
		return nil, err
	}
	answer, err := work(tx)
	var refused Refused
	if errors.As(err, &refused) {
		_, err = tx.Exec("ROLLBACK TO SAVEPOINT work")
		return refused.Answer, err
	}
	return answer, err
}

func call(tx *sql.Tx, function string, arguments ...any) (outcome string, answer *Answer, err error) {
	var status sql.NullInt32
	var headers, body []byte
	row := tx.QueryRow("SELECT outcome, status, headers, body FROM "+function, arguments...)
	if err = row.Scan(&outcome, &status, &headers, &body); err != nil {
		return "", nil, err
	}
	answer = &Answer{int(status.Int32), map[string][]string{}, body}
	if headers != nil {
		var values map[string]any // a string, or an array of strings
		err = json.Unmarshal(headers, &values)
		for name, value := range values {
			if list, isList := value.([]any); isList {
				for _, one := range list {
					answer.Headers[name] = append(answer.Headers[name], one.(string))
				}
			} else {
				answer.Headers[name] = []string{value.(string)}
			}
		}
	}
	return outcome, answer, err
}

// key is the header as it came, all of its lines, or NULL: of two keys the extension says that they are not
// valid. A character for each byte, as most servers have it, because what is no UTF-8 cannot go to the
// database as text.
func key(r *http.Request) (key sql.NullString) {
	if lines := r.Header.Values("Idempotency-Key"); len(lines) > 0 {
		var text []rune
		for _, char := range []byte(strings.Join(lines, ", ")) {
			text = append(text, rune(char))
		}
		key = sql.NullString{String: string(text), Valid: true}
	}
	return key
}

func sqlstate(err error) string {
	var refusal *pq.Error
	if errors.As(err, &refusal) {
		return string(refusal.Code)
	}
	return ""
}

// Send writes the answer.
func (answer *Answer) Send(w http.ResponseWriter) {
	for name, values := range answer.Headers {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(answer.Status)
	w.Write(answer.Body)
}
