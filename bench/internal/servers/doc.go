// Package servers asks the nodes what a trial cost them, which locks it left
// behind, and, all the while, whether they answer.
//
// It talks to the servers on connections of its own. A Watch knows what it has
// itself asked of each node, so that this is left out of what it reports. A node
// that cannot be asked is waited for a second, and costs nothing as far as is known.
//
// Errors name nodes by their address, never by their URL, which may hold a password.
package servers
