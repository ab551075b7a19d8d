package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// format is the version of the JSON form. It changes when a field changes its
// meaning or goes away; new fields do not change it.
const format = 1

type document struct {
	Format int `json:"format"`
	record.Run
}

// JSON writes all of the run that a report can be made of again.
func JSON(w io.Writer, run record.Run) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(document{format, clean(run)})
}

// ReadJSON reads what JSON wrote.
func ReadJSON(r io.Reader) (record.Run, error) {
	var d document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return record.Run{}, fmt.Errorf("this is no report of the benchmark in JSON: %w", err)
	}
	if d.Format != format {
		return record.Run{}, fmt.Errorf("the report's format is %d, and this program reads %d: use the program that wrote it", d.Format, format)
	}
	return d.Run, nil
}
