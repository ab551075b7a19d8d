package measure

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redquorum/redquorum/redlock"
)

// Prometheus returns the name and the labels of a metric in the notation of Prometheus.
func (m *Metric) Prometheus() (name string, labels []string) {
	name = "redlock_" + strings.ReplaceAll(strings.TrimSuffix(m.Name, ".duration"), ".", "_")
	switch {
	case m.Buckets != nil:
		name += "_seconds"
	case !m.Level:
		name += "_total"
	}
	for _, label := range m.Labels {
		labels = append(labels, strings.Replace(label, "fault", "kind", 1))
	}
	return name, labels
}

// An Exporter counts the events of a Locker, and writes them in the text format of Prometheus. It
// has the metrics of contrib/prometheus, without the dependencies of Prometheus' client. It is safe
// for concurrent use.
type Exporter struct {
	mu     sync.Mutex
	series map[*Metric]map[values]*series // guarded by mu, like each series
}

var _ redlock.Tracer = (*Exporter)(nil)

// values are the values of the labels of a series. A metric has at most three labels.
type values [3]string

// A series is a metric with some values of its labels.
type series struct {
	sum    float64  // value of a counter or a level
	count  uint64   // number of additions
	counts []uint64 // additions to each bucket, without smaller buckets
}

// NewExporter returns an Exporter. A series whose labels are known exists from the start, with value zero: rate() in
// Prometheus does not see the first increase of a new series.
func NewExporter() *Exporter {
	e := &Exporter{series: map[*Metric]map[values]*series{}}
	for _, m := range Metrics {
		e.series[m] = map[values]*series{}
		if m.Labels == nil {
			e.of(m, values{})
		}
		for _, value := range m.Values {
			e.of(m, values{value})
		}
	}
	return e
}

// of returns a series, creating it on first use. The caller must hold e.mu, unless e is new.
func (e *Exporter) of(m *Metric, with values) *series {
	s := e.series[m][with]
	if s == nil {
		s = &series{counts: make([]uint64, len(m.Buckets))}
		e.series[m][with] = s
	}
	return s
}

// Start implements redlock.Tracer.
func (e *Exporter) Start(ctx context.Context, _ string) context.Context { return Start(ctx, e) }

// Observe implements redlock.Observer.
func (e *Exporter) Observe(event redlock.Event) { Observe(e, event) }

// Add implements Meter.
func (e *Exporter) Add(_ context.Context, to *Metric, by float64, of ...string) {
	var with values
	copy(with[:], of)
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.of(to, with)
	s.sum += by
	s.count++
	if i, _ := slices.BinarySearch(to.Buckets, by); i < len(s.counts) {
		s.counts[i]++
	}
}

// WriteTo implements io.WriterTo. It writes all metrics.
func (e *Exporter) WriteTo(w io.Writer) (int64, error) {
	var text strings.Builder
	e.mu.Lock()
	for _, m := range Metrics {
		e.write(&text, m)
	}
	e.mu.Unlock()
	n, err := io.WriteString(w, text.String())
	return int64(n), err
}

// write writes the series of a metric, if it has any. The caller must hold e.mu.
func (e *Exporter) write(text *strings.Builder, m *Metric) {
	name, names := m.Prometheus()
	kind := "counter"
	switch {
	case m.Buckets != nil:
		kind = "histogram"
	case m.Level:
		kind = "gauge"
	}
	all := slices.SortedFunc(maps.Keys(e.series[m]), func(a, b values) int { return slices.Compare(a[:], b[:]) })
	if len(all) > 0 {
		Head(text, name, kind, m.Help)
	}
	for _, with := range all {
		s := e.series[m][with]
		var labels []string
		for i, label := range names {
			labels = append(labels, Label(label, with[i]))
		}
		if m.Buckets == nil {
			line(text, name, labels, s.sum)
			continue
		}
		up := uint64(0)
		for i, most := range m.Buckets {
			up += s.counts[i]
			line(text, name+"_bucket", append(slices.Clip(labels), Label("le", number(most))), float64(up))
		}
		line(text, name+"_bucket", append(slices.Clip(labels), Label("le", "+Inf")), float64(s.count))
		line(text, name+"_sum", labels, s.sum)
		line(text, name+"_count", labels, float64(s.count))
	}
}

// Head writes the lines that precede the series of a metric.
func Head(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %[1]s %[3]s\n# TYPE %[1]s %[2]s\n", name, kind, help)
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// Label returns a label with its value in text format.
func Label(name, value string) string { return name + `="` + escape.Replace(value) + `"` }

func line(text *strings.Builder, name string, labels []string, value float64) {
	text.WriteString(name)
	if labels != nil {
		text.WriteString("{" + strings.Join(labels, ",") + "}")
	}
	text.WriteString(" " + number(value) + "\n")
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
