package redquorum_test

import (
	"testing"

	"github.com/redquorum/redquorum/internal/readme"
)

func TestTheReadmesProgramIsTheTestedOne(t *testing.T) {
	t.Parallel()
	readme.IsTested(t)
}
