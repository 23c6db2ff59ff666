// Google Cloud Storage as fake-gcs-server emulates it: in memory, on a free port of the loopback interface, until its
// input ends.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http"})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": server.URL()}); err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Fatal(err)
	}
}
