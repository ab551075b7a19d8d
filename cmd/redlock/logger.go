package main

import (
	"log/slog"

	"github.com/spf13/cobra"
)

// logger is where a command tells what happens: with --verbose on stderr, or
// nowhere.
func (s *servers) logger(c *cobra.Command) *slog.Logger {
	if !s.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
