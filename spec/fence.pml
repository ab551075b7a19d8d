/*
 * Fencing tokens.
 *
 * A node keeps the highest number that it has accepted. A client proposes a number of its own, and
 * has it for its token if a quorum accepts it. If its number is too low it may propose a higher one,
 * once. The token goes with each write to a resource, which keeps the highest that it has seen.
 *
 * Promise P2, checked with each token: no other client has it, and it is above those of all clients
 * that had theirs before this one asked. And, checked with each write: nothing is written by a
 * client after a write of one that asked when the first had its token already.
 *
 * There is no time here, and no lock: a node may accept numbers of any clients in any order, as if
 * each lock expired at once. Clients propose any numbers, as if their clocks said anything. They
 * stop anywhere for as long as they like. Requests and replies are late, lost or doubled.
 *
 * Each switch below drops an assumption or a mechanism, and breaks a promise.
 */
#define N 3
#ifndef CLIENTS
#define CLIENTS 3       /* 2 or 3 */
#endif
#ifndef NUMBERS
#define NUMBERS 3       /* that may be proposed: 1 to NUMBERS */
#endif

#define QUORUM (N / 2 + 1)

#ifdef ACCEPT_EQUAL     /* a node accepts a number twice */
#define accepts(n, c) (token[c] >= counter[n])
#else
#define accepts(n, c) (token[c] > counter[n])
#endif

#ifdef NO_CHECK         /* the resource takes each write */
#define takes(t) true
#else
#define takes(t) (t >= seen)
#endif

byte counter[N];        /* the highest number that a node has accepted */
byte seen;              /* the highest token that the resource has seen */

mtype = { idle, asking, raising, granted };
mtype phase[CLIENTS] = idle;
byte token[CLIENTS];    /* the number proposed; of INCR_AND_MAX the highest answer */
byte accepted[CLIENTS]; /* a bit for each node that has accepted it */

/* What the promises speak of: a bit for each client. */
byte had;               /* has a token */
byte before[CLIENTS];   /* had its token before this one asked */
byte wrote;             /* its write was taken */

#define bit(n) (1 << (n))
#define count(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define name(c) ('A' + (c))

#define unique(c, d) (d == c || !(had & bit(d)) || token[d] != token[c])
#define above(c, d) (!(before[c] & bit(d)) || token[c] > token[d])
#define in_turn(c, d) (!(wrote & bit(d)) || !(before[d] & bit(c)))
#if CLIENTS == 3
#define of_all(p, c) (p(c, 0) && p(c, 1) && p(c, 2))
#else
#define of_all(p, c) (p(c, 0) && p(c, 1))
#endif

inline propose(c, least) {
	select(number : 1 .. NUMBERS);
	if
	:: number >= least -> token[c] = number
	:: else -> token[c] = NUMBERS
	fi;
	number = 0
}

proctype client(byte c) {
	byte number = 0;
	atomic {
		phase[c] = asking; before[c] = had;
#ifdef INCR_AND_MAX             /* nodes count, and a client takes the highest count of a quorum */
		printf("%c asks all nodes\n", name(c))
#else
		propose(c, 1);
		printf("%c asks all nodes to accept %d\n", name(c), token[c])
#endif
	}
end:	do
	:: atomic {
		(phase[c] == asking || phase[c] == raising) && count(accepted[c]) >= QUORUM ->
		phase[c] = granted; accepted[c] = 0;
		printf("%c has the token %d\n", name(c), token[c]);
		assert(of_all(unique, c) && of_all(above, c));
		had = had | bit(c)
	   }
#ifndef INCR_AND_MAX
	:: atomic {
		phase[c] == asking && token[c] < NUMBERS ->
		phase[c] = raising;
		propose(c, token[c] + 1);
#ifndef COUNT_TOGETHER          /* nodes that accepted the lower number count for the higher one */
		accepted[c] = 0;
#endif
		printf("%c asks all nodes to accept %d instead\n", name(c), token[c])
	   }
#endif
	:: atomic {
		phase[c] == granted && takes(token[c]) ->
		printf("%c writes with the token %d\n", name(c), token[c]);
		assert(of_all(in_turn, c));
		wrote = wrote | bit(c); seen = (token[c] > seen -> token[c] : seen)
	   }
	od
}

/* What a node does with the requests of a client. */
proctype requests(byte c; byte n) {
end:	do
#ifdef INCR_AND_MAX
	:: atomic {
		phase[c] == asking && !(accepted[c] & bit(n)) && counter[n] < NUMBERS ->
		counter[n]++;
		token[c] = (counter[n] > token[c] -> counter[n] : token[c]);
		accepted[c] = accepted[c] | bit(n);
		printf("node %d answers %c: %d\n", n + 1, name(c), counter[n])
	   }
#else
	:: atomic {
		phase[c] != idle && accepts(n, c) ->
		counter[n] = token[c];
		if
		:: phase[c] != granted -> accepted[c] = accepted[c] | bit(n)
		:: else
		fi;
		printf("node %d accepts %d of %c\n", n + 1, token[c], name(c))
	   }
#endif
#ifdef COUNTER_LOST             /* a node's counter alone is deleted */
	:: atomic {
		c == 0 && counter[n] > 0 ->
		counter[n] = 0;
		printf("node %d loses its counter\n", n + 1)
	   }
#endif
	od
}

init {
	byte c, n;
	atomic {
		for (c : 0 .. CLIENTS - 1) {
			run client(c);
			for (n : 0 .. N - 1) {
				run requests(c, n)
			}
		}
		c = 0; n = 0
	}
}
