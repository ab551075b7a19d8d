package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Histogram counts durations from a microsecond to two minutes with three significant digits;
// longer ones count as two minutes. It is not safe for concurrent use. The zero value is empty.
type Histogram struct{ hdr *hdrhistogram.Histogram }

const longest = 2 * time.Minute

// Coarse returns a Histogram with two significant digits, an eighth of the size: for where there
// are many.
func Coarse() Histogram { return Histogram{hdr: hdrhistogram.New(10, int64(longest/tick), 2)} }

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	if h.hdr == nil {
		h.hdr = newHDR()
	}
	h.hdr.RecordValue(int64(min(max(d, 0), longest) / tick)) // within its bounds, so that it cannot fail
}

// tick is the unit of the histograms, finer than their resolution.
const tick = 100 * time.Nanosecond

func newHDR() *hdrhistogram.Histogram { return hdrhistogram.New(10, int64(longest/tick), 3) }

// Merge counts all that other has counted.
func (h *Histogram) Merge(other Histogram) {
	if other.hdr == nil {
		return
	}
	if h.hdr == nil {
		h.hdr = newHDR()
	}
	h.hdr.Merge(other.hdr)
}

// Count is how many durations there are.
func (h Histogram) Count() int64 {
	if h.hdr == nil {
		return 0
	}
	return h.hdr.TotalCount()
}

// At returns the quantile q, from 0 to 1; zero if nothing was counted.
func (h Histogram) At(q float64) time.Duration {
	if h.Count() == 0 {
		return 0
	}
	return time.Duration(h.hdr.ValueAtQuantile(100*q)) * tick
}

// histogramJSON has the main quantiles beside the histogram, for readers that do not know its form.
type histogramJSON struct {
	Count int64         `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
	HDR   string        `json:"hdr,omitempty"` // V2 compressed, in units of 100 ns
}

func (h Histogram) MarshalJSON() ([]byte, error) {
	j := histogramJSON{Count: h.Count(), P50: h.At(0.5), P99: h.At(0.99), Max: h.At(1)}
	if h.Count() > 0 {
		hdr, err := h.hdr.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			return nil, err
		}
		j.HDR = string(hdr)
	}
	return json.Marshal(j)
}

func (h *Histogram) UnmarshalJSON(b []byte) error {
	var j histogramJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	h.hdr = nil
	if j.HDR == "" {
		return nil
	}
	hdr, err := hdrhistogram.Decode([]byte(j.HDR))
	if err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	h.Merge(Histogram{hdr})
	return nil
}
