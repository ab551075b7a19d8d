//go:build !race

package redquorum_test

const raceDetector = false
