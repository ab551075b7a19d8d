package load

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// TestMain is the client process too, as the main of the benchmark is.
func TestMain(m *testing.M) {
	library := find
	find = func(name string) (subject.Spec, error) {
		if spec, ok := fakes[name]; ok {
			spec.Name = name
			return spec, nil
		}
		return library(name)
	}
	if IsClient() {
		os.Exit(Main())
	}
	goleak.VerifyTestMain(m)
}
