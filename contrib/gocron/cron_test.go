package redlockgocron_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// scheduleReport is the code for robfig/cron in docs/ADAPTERS.md. There is no adapter for that
// library. The test is in this module because gocron depends on robfig/cron.
func scheduleReport(ctx context.Context, c *cron.Cron, locker *redlock.Locker, write func(context.Context, time.Time) error) {
	report := once.Job{Locker: locker, Name: "report", Every: 5 * time.Minute}
	c.AddFunc("*/5 * * * *", func() {
		outcome, err := report.Run(ctx, write) // write's context ends if the lock is lost
		slog.Info("report", "outcome", outcome, "err", err)
	})
}

// TestRobfigCronRunsATickOnce: two machines start the job, and one runs it.
func TestRobfigCronRunsATickOnce(t *testing.T) {
	var said bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	for {
		tick, ran := time.Now().Round(every), 0
		locker, closeAll := sim.ExampleLocker()
		for range 2 {
			machine := cron.New()
			scheduleReport(t.Context(), machine, locker, func(context.Context, time.Time) error { ran++; return nil })
			require.Len(t, machine.Entries(), 1)
			machine.Entries()[0].Job.Run() // cron does this at a multiple of five minutes
		}
		closeAll()
		if time.Now().Round(every).Equal(tick) { // otherwise they may have run two ticks
			assert.Equal(t, 1, ran, said.String())
			assert.Contains(t, said.String(), "outcome=done")
			return
		}
	}
}
