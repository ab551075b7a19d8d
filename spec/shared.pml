/*
 * Readers and a writer.
 *
 * A node has a key for the lock: a writer's value or, while there are readers, a marker. Beside it
 * is a set of readers, each with a time of its own. The key with the marker lives as long as the
 * last of them. A writer's request is that for a plain lock, of any library: it is granted where
 * there is no key. A reader's is granted where there is no writer.
 *
 * The promise, checked whenever a client comes to hold the lock, or to hold it longer: a writer
 * holds it beside no other client. Readers hold it together.
 *
 * Time, requests and replies are those of lock.pml, which has the memory guard, too. A is a writer
 * that may become a reader (Downgrade), B and C are readers, and B may extend.
 *
 * Each switch below drops a mechanism, and breaks the promise.
 */
#ifndef TTL
#define TTL 3
#endif
#define N 3
#define CLIENTS 3
#define QUORUM (N / 2 + 1)
#define BELIEVED (TTL - 1)
#define LIFE (TTL - 1)  /* of a key, by the fastest clock of a node */
#define A 0
#define B 1
#define C 2

mtype = { idle, asking, holding, over };
mtype = { none, value, marker };

mtype key[N] = none;
byte left[N];                   /* ticks until the key expires */
byte reader[N * CLIENTS];       /* ticks until a reader's time is over; 0: it is not in the set */
#define member(n, c) reader[(n) * CLIENTS + (c)]

mtype phase[CLIENTS] = idle;
bool reads[CLIENTS];
byte life[CLIENTS];     /* ticks until the votes, or the lock, are worth nothing */
byte votes[CLIENTS];    /* a bit for each node whose vote counts */
byte next;              /* the life that B's extension is to bring; 0: none is under way */
byte again;             /* a bit for each node whose extension counts */
byte turned;            /* a bit for each node that made A a reader */

#define bit(n) (1 << (n))
#define count(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define name(c) ('A' + (c))

#ifdef DOWNGRADE_WRITES /* a writer is one until a quorum has made it a reader */
#define writes(c) (phase[c] == holding && (!reads[c] || c == A && count(turned) < QUORUM))
#else
#define writes(c) (phase[c] == holding && !reads[c])
#endif
#define EXCLUSION !(writes(A) && (phase[B] == holding || phase[C] == holding))

inline finish(c) {
	phase[c] = over; life[c] = 0; votes[c] = 0;
	if
	:: c == B -> next = 0; again = 0
	:: c == A -> turned = 0
	:: else
	fi
}

/* The key lives as long as the last reader. */
inline mark(n) {
#ifdef FIRST_EXPIRY     /* the marker lives as long as the reader that leaves first */
	i = 0; left[n] = LIFE;
	do
	:: i < CLIENTS ->
		left[n] = (member(n, i) > 0 && member(n, i) < left[n] -> member(n, i) : left[n]);
		i++
	:: else -> break
	od;
#else
	i = 0; left[n] = 0;
	do
	:: i < CLIENTS ->
		left[n] = (member(n, i) > left[n] -> member(n, i) : left[n]);
		i++
	:: else -> break
	od;
#endif
	i = 0;
	key[n] = (left[n] > 0 -> marker : none)
}

proctype client(byte c) {
	atomic {
		phase[c] = asking; life[c] = BELIEVED; reads[c] = (c != A);
		if
		:: reads[c] -> printf("%c asks all nodes, to read\n", name(c))
		:: else -> printf("%c asks all nodes, to write\n", name(c))
		fi
	}
end:	do
	:: atomic {
		phase[c] == asking && count(votes[c]) >= QUORUM ->
		phase[c] = holding; votes[c] = 0;
		printf("%c holds the lock for %d ticks\n", name(c), life[c]);
		assert(EXCLUSION)
	   }
	:: atomic {
		c == B && phase[c] == holding && next == 0 ->
		next = BELIEVED;
		printf("%c asks all nodes for an extension\n", name(c))
	   }
	:: atomic {
		c == B && next > 0 && count(again) >= QUORUM ->
		life[c] = next; next = 0; again = 0;
		printf("%c has extended the lock to %d ticks\n", name(c), life[c]);
		assert(EXCLUSION)
	   }
	:: atomic {
		c == A && phase[c] == holding && !reads[c] ->
		reads[c] = true;
		printf("%c asks all nodes to make it a reader\n", name(c))
	   }
	:: atomic {
		phase[c] == asking || phase[c] == holding ->
		finish(c);
		printf("%c stops, and asks all nodes to release\n", name(c))
	   }
	od
}

/* What a node does with the requests of a client. */
proctype requests(byte c; byte n) {
	byte i = 0;
end:	do
	:: atomic {
		c == A && phase[c] != idle && key[n] == none ->
		key[n] = value; left[n] = LIFE;
		votes[c] = (phase[c] == asking -> votes[c] | bit(n) : 0);
		printf("node %d grants %c the key for %d ticks\n", n + 1, name(c), LIFE)
	   }
	:: atomic {
		c != A && phase[c] != idle && member(n, c) == 0 && key[n] != value ->
		member(n, c) = LIFE;
#ifndef NO_MARKER               /* readers do not stand in the way of plain locks */
		mark(n);
#endif
		votes[c] = (phase[c] == asking -> votes[c] | bit(n) : 0);
		printf("node %d lets %c read for %d ticks\n", n + 1, name(c), LIFE)
	   }
	:: atomic {
#ifdef EXTEND_BLINDLY           /* the extension does not look whether the reader is still there */
		c == B && next > 0 && key[n] == marker ->
#else
		c == B && next > 0 && key[n] == marker && member(n, c) > 0 ->
		member(n, c) = LIFE; mark(n);
#endif
		again = again | bit(n);
		printf("node %d extends %c's time to %d ticks\n", n + 1, name(c), LIFE)
	   }
	:: atomic {
		c == A && reads[c] && phase[c] == holding && key[n] == value ->
		member(n, c) = left[n]; mark(n);
		turned = turned | bit(n);
		printf("node %d makes %c a reader\n", n + 1, name(c))
	   }
	:: atomic {
		c == A && phase[c] == over && key[n] == value ->
		key[n] = none; left[n] = 0;
		printf("node %d runs %c's release\n", n + 1, name(c))
	   }
	:: atomic {
		phase[c] == over && member(n, c) > 0 ->
		member(n, c) = 0;
#ifdef LEAVE_DELETES            /* each reader that leaves deletes the marker */
		key[n] = none; left[n] = 0;
#else
		if
		:: key[n] == marker -> mark(n)
		:: else
		fi;
#endif
		printf("node %d runs %c's release\n", n + 1, name(c))
	   }
	od
}

inline countdown(x) {
	x = (x > 0 -> x - 1 : 0)
}

proctype time() {
	byte i = 0;
	do
	:: d_step {
		do
		:: i < N ->
			countdown(left[i]);
			key[i] = (left[i] > 0 -> key[i] : none);
			countdown(member(i, A)); countdown(member(i, B)); countdown(member(i, C));
			i++
		:: else -> break
		od;
		i = 0; countdown(next);
		again = (next > 0 -> again : 0);
		do
		:: i < CLIENTS ->
			countdown(life[i]);
			if
			:: (phase[i] == asking || phase[i] == holding) && life[i] == 0 -> finish(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		printf("a tick passes\n")
	   }
	od
}

init {
	byte c, n;
	atomic {
		run time();
		for (c : 0 .. CLIENTS - 1) {
			run client(c);
			for (n : 0 .. N - 1) {
				run requests(c, n)
			}
		}
		c = 0; n = 0
	}
}
