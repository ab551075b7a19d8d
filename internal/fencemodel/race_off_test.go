//go:build !race

package fencemodel

const raceDetector = false
