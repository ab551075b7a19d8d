package subject

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// All returns the subjects in the order of reports.
func All() []Spec {
	return append(append(append(redquorums(), redsyncs()...), ofRueidislock(), ofBSM()), limit())
}

// Find returns the subjects of these names, in the order of names.
func Find(names []string) ([]Spec, error) {
	all := All()
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	var found []Spec
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("there is no subject %q; there are %s", name, strings.Join(known, ", "))
		}
		found = append(found, all[i])
	}
	return found, nil
}

// titled is a library's name with the version that is built in, so that a report
// cannot claim another.
func titled(name, module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace == nil {
			return name + " " + strings.TrimPrefix(dep.Version, "v")
		}
	}
	return name
}
