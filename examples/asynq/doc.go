// Package asynq shows one of several schedulers of github.com/hibiken/asynq at work, under package
// election. Its test is the program of docs/RECIPES.md, on a real server. It is in a module of its own,
// so that the lock itself does not depend on asynq.
package asynq
