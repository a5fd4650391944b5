// Orders, executed at most once per idempotency key: net/http and database/sql with lib/pq.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	http.HandleFunc("/orders", authenticated(func(w http.ResponseWriter, r *http.Request, user string) error {
		return create(db, w, r, user)
	}))
	http.HandleFunc("/orders/", authenticated(func(w http.ResponseWriter, r *http.Request, user string) error {
		return show(db, w, r, user)
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}

func create(db *sql.DB, w http.ResponseWriter, r *http.Request, user string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	answer, err := Keyed(db, r, user, "POST /orders", body, func(tx *sql.Tx) (*Answer, error) {
		return order(tx, user, body)
	})
	if err == nil {
		answer.Send(w)
	}
	return err
}

func order(tx *sql.Tx, user string, body []byte) (*Answer, error) {
	senseless := Refused{jsonAnswer(400, `{"error": "a JSON object with an item is wanted"}`)}
	var wanted map[string]json.RawMessage
	var item *string
	if json.Unmarshal(body, &wanted) != nil || json.Unmarshal(wanted["item"], &item) != nil || item == nil {
		return nil, senseless
	}
	var id int64
	err := tx.QueryRow("INSERT INTO orders (owner, item, request) "+
		"VALUES ($1, $2, convert_from($3, 'UTF8')::json) RETURNING id", user, *item, body).Scan(&id)
	if err == nil {
		_, err = tx.Exec("UPDATE stock SET pieces = pieces - 1 WHERE item = $1", *item)
	}
	if strings.HasPrefix(sqlstate(err), "22") { // data exception: not UTF-8, for example
		return nil, senseless
	}
	if strings.HasPrefix(sqlstate(err), "23") { // integrity constraint violation
		return nil, Refused{jsonAnswer(409, `{"error": "not in stock"}`)}
	}
	if err != nil {
		return nil, err
	}
	answer := jsonAnswer(201, fmt.Sprintf(`{"order": %d, "request": %s}`, id, body))
	answer.Headers["Location"] = []string{fmt.Sprintf("/orders/%d", id)}
	return answer, nil
}

func show(db *sql.DB, w http.ResponseWriter, r *http.Request, user string) error {
	id := strings.TrimPrefix(r.URL.Path, "/orders/")
	var request string
	err := db.QueryRow("SELECT request::text FROM orders WHERE id = $1 AND owner = $2", id, user).Scan(&request)
	if err == sql.ErrNoRows {
		jsonAnswer(404, `{"error": "no such order"}`).Send(w)
		return nil
	}
	if err == nil {
		jsonAnswer(200, fmt.Sprintf(`{"order": %s, "request": %s}`, id, request)).Send(w)
	}
	return err
}

// authenticated tells the handler whoever the key belongs to. A real service checks the token.
func authenticated(handler func(http.ResponseWriter, *http.Request, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Get("Authorization")
		user := strings.TrimPrefix(header, "Bearer ")
		if user == header {
			jsonAnswer(401, `{"error": "a bearer is wanted"}`).Send(w)
			return
		}
		if err := handler(w, r, user); err != nil {
			log.Print(err)
			jsonAnswer(500, `{"error": "try again"}`).Send(w)
		}
	}
}

func jsonAnswer(status int, body string) *Answer {
	return &Answer{status, map[string][]string{"Content-Type": {"application/json"}}, []byte(body)}
}
