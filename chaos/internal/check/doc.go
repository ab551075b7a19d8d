// Package check judges histories. Each rule is a function of its own, which
// finds violations in what clients, register and nemesis have told:
//
//	overlap    no two clients hold a name at the same time
//	fencing    tokens are unique, and rise from each lock to those asked for after it
//	mutex      the history is one of a mutex that hands out rising tokens (porcupine)
//	register   what a client wrote never comes after what a later holder wrote
//	leftover   no server keeps a lock that nobody holds
//	evidence   locks were granted and faults happened; else nothing was shown
//
// The rules overlap on purpose: overlap and fencing say what is wrong in terms
// of the promises, and mutex finds what they cannot see, such as tokens that
// rise with time but not in the order in which the locks were held.
//
// No rule raises a false alarm: where a history leaves open what happened, a rule
// assumes the best.
package check
