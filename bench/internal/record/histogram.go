package record

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Histogram counts durations from a microsecond to two minutes with three significant digits;
// longer ones count as two minutes. It is not safe for concurrent use. The zero value is empty.
type Histogram struct{ hdr *hdrhistogram.Histogram }

const (
	longest = 2 * time.Minute
	tick    = 100 * time.Nanosecond // unit of the counts, finer than their resolution
)

// NewHistogram returns an empty histogram that allocates nothing later.
func NewHistogram() Histogram { return Histogram{hdrhistogram.New(10, int64(longest/tick), 3)} }

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	if h.hdr == nil {
		*h = NewHistogram()
	}
	h.hdr.RecordValue(int64(min(max(d, 0), longest) / tick)) // the value is within the bounds, so the call cannot fail
}

// Merge adds the counts of other.
func (h *Histogram) Merge(other Histogram) {
	if h.hdr == nil {
		*h = NewHistogram()
	}
	if other.hdr != nil {
		h.hdr.Merge(other.hdr)
	}
}

// Count returns the number of durations.
func (h Histogram) Count() int64 {
	if h.hdr == nil {
		return 0
	}
	return h.hdr.TotalCount()
}

// At returns the quantile q, from 0 to 1, in nanoseconds; NaN if the histogram is empty, because
// zero is a latency.
func (h Histogram) At(q float64) float64 {
	if h.Count() == 0 {
		return math.NaN()
	}
	return float64(time.Duration(h.hdr.ValueAtQuantile(100*q)) * tick)
}

// histogramJSON has the histogram and its main quantiles, for readers that do not know HDR.
type histogramJSON struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ns,omitempty"`
	P99   float64 `json:"p99_ns,omitempty"`
	Max   float64 `json:"max_ns,omitempty"`
	HDR   string  `json:"hdr,omitempty"` // compressed V2 format, in units of 100 ns
}

func (h Histogram) MarshalJSON() ([]byte, error) {
	if h.Count() == 0 {
		return json.Marshal(histogramJSON{})
	}
	hdr, err := h.hdr.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	return json.Marshal(histogramJSON{h.Count(), h.At(0.5), h.At(0.99), h.At(1), string(hdr)})
}

func (h *Histogram) UnmarshalJSON(b []byte) error {
	var j histogramJSON
	if err := json.Unmarshal(b, &j); err != nil || j.HDR == "" {
		return err
	}
	hdr, err := hdrhistogram.Decode([]byte(j.HDR))
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	h.Merge(Histogram{hdr})
	return nil
}
