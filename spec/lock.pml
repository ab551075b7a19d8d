/*
 * The lock and its memory guard, with plain locks and extensions.
 *
 * A client asks N nodes for a key with a TTL. If a quorum grants it, the client holds the lock from
 * then until the TTL has passed since it asked, less an allowance for clocks. It may extend that. A
 * node grants a key only while it has none. A node that may have forgotten keys is in quarantine:
 * what it grants does not count.
 *
 * Promise P1, checked whenever a client comes to hold the lock: no other holds it.
 *
 *   Time      is ticks. They come at any moment, and what is left of each TTL is counted down, so
 *             that a run need not end.
 *   Clients   make one try each, with a value of their own: one that tries again is another client.
 *             They stop anywhere for as long as they like. A extends its lock, B does not.
 *   Requests  that were sent are run by a node never, or at any later time, any number of times, in
 *             any order, also behind the release. That covers delay, loss, retries, repairs, and
 *             what broken connections leave behind.
 *   Replies   are late or lost, because a client may act on those that it has, or wait.
 *   Nodes     run as fast as the allowance permits, so that their keys expire early.
 *
 * Each switch below drops an assumption or a mechanism, and breaks P1.
 */
#ifndef TTL
#define TTL 3
#endif
#if defined(RELEASE_ANYONES) && !defined(CLIENTS) /* it takes a third */
#define CLIENTS 3
#endif
#ifndef CLIENTS
#define CLIENTS 2       /* 2 or 3 */
#endif
#define N 3

#ifdef CLOCKS_OFF       /* a node's clock gains more than the allowance */
#define GAIN 2
#else
#define GAIN 1
#endif
#define ALLOWANCE 1
#define BELIEVED (TTL - ALLOWANCE)

#ifdef NO_GUARD         /* the votes of a node that forgot count at once */
#define QUARANTINE 0
#elif defined(SHORT_QUARANTINE) /* a lock has a longer TTL than the quarantine is for */
#define QUARANTINE (BELIEVED - 1)
#else
#define QUARANTINE BELIEVED
#endif

#ifdef HALF_IS_QUORUM   /* two quorums need not meet */
#define QUORUM (N / 2)
#else
#define QUORUM (N / 2 + 1)
#endif
#ifdef OTHER_NODES      /* B takes node 1 for the only one */
#define quorum(c) (c == 1 -> 1 : QUORUM)
#define asks(c, n) (c == 0 || n == 0)
#else
#define quorum(c) QUORUM
#define asks(c, n) true
#endif

#ifdef IGNORE_DEADLINE  /* a client goes on when its time is over: it does not heed Lock.Context */
#define MAY_STOP_LATE true
#define relies(c) (phase[c] == holding)
#else
#define MAY_STOP_LATE false
#define relies(c) (phase[c] == holding)
#endif

#if defined(TOO_MANY_FORGET) && !defined(UNNOTICED) /* h+q-N nodes forget unnoticed, or more */
#define UNNOTICED
#endif
#ifdef UNNOTICED        /* no fault: nodes forget unnoticed, and P1 holds while they are few */
#define MAY_LOSE true
#else
#define MAY_LOSE false
#endif

byte owner[N];          /* whose key a node has: 1 + the client; 0: no key */
byte left[N];           /* ticks until the key expires */
byte mute[N];           /* ticks until the quarantine is over */
byte had[N];            /* ticks for which A knows that it had the key there: less than the key lives */

mtype = { idle, asking, holding, over };
mtype phase[CLIENTS] = idle;
byte life[CLIENTS];     /* ticks until the votes, or the lock, are worth nothing */
byte votes[CLIENTS];    /* a bit for each node whose vote counts */
byte next[CLIENTS];     /* the life that the extension under way is to bring; 0: none is */
byte again[CLIENTS];    /* a bit for each node whose extension counts */
byte lost[CLIENTS];     /* a bit for each of votes that was forgotten unnoticed */

#define bit(n) (1 << (n))
#define count(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define name(c) ('A' + (c))

/* P1 bears fewer than h+q-N nodes that forget unnoticed, where h nodes voted for the lock. */
#ifdef TOO_MANY_FORGET
#define promised(c) true
#elif defined(UNNOTICED)
#define promised(c) (count(lost[c]) < count(votes[c]) + QUORUM - N)
#else
#define promised(c) true
#endif

#define holds(c) (relies(c) && promised(c))
#if CLIENTS == 3
#define P1 (holds(0) + holds(1) + holds(2) <= 1)
#else
#define P1 (holds(0) + holds(1) <= 1)
#endif

inline finish(c) {
	phase[c] = over; life[c] = 0; votes[c] = 0; next[c] = 0; again[c] = 0; lost[c] = 0;
	if
	:: c == 0 -> had[0] = 0; had[1] = 0; had[2] = 0
	:: else
	fi
}

inline lose(n) {
	owner[n] = 0; left[n] = 0
}

proctype client(byte c) {
	atomic {
		phase[c] = asking; life[c] = BELIEVED;
		printf("%c asks all nodes\n", name(c))
	}
end:	do
	:: atomic {
		phase[c] == asking && life[c] > 0 && count(votes[c]) >= quorum(c) ->
		phase[c] = holding;
#ifdef COUNT_FROM_GRANT         /* the TTL counts from when the votes are there */
		life[c] = BELIEVED;
#endif
		votes[c] = (MAY_LOSE -> votes[c] : 0);
		printf("%c holds the lock for %d ticks\n", name(c), life[c]);
		assert(P1)
	   }
	:: atomic {
		c == 0 && phase[c] == holding && life[c] > 0 && next[c] == 0 ->
		next[c] = BELIEVED;
		printf("%c asks all nodes for an extension\n", name(c))
	   }
	:: atomic {
		next[c] > 0 && count(again[c]) >= quorum(c) ->
		life[c] = next[c]; next[c] = 0; again[c] = 0;
		printf("%c has extended the lock to %d ticks\n", name(c), life[c]);
		assert(P1)
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
end:	do
	:: atomic {
		phase[c] != idle && asks(c, n) && owner[n] == 0 ->
		owner[n] = c + 1; left[n] = TTL - GAIN;
		if
		:: mute[n] == 0 && phase[c] == asking ->
			votes[c] = votes[c] | bit(n); lost[c] = lost[c] & ~bit(n);
			had[n] = (c == 0 -> BELIEVED : had[n]);
			printf("node %d grants %c a key for %d ticks\n", n + 1, name(c), left[n])
		:: mute[n] == 0 && phase[c] != asking ->
			had[n] = (c == 0 && phase[c] == holding -> BELIEVED : had[n]);
			printf("node %d runs %c's request late\n", n + 1, name(c))
		:: mute[n] > 0 ->
			printf("node %d, in quarantine, gives %c a key\n", n + 1, name(c))
		fi
	   }
	:: atomic {
		next[c] > 0 && owner[n] == c + 1 ->
		left[n] = TTL - GAIN;
		if
#ifdef MUTE_EXTENDS             /* an extension counts in quarantine, whenever the key came */
		:: true ->
#else
		:: mute[n] == 0 || had[n] > 0 ->
#endif
			again[c] = again[c] | bit(n); had[n] = BELIEVED;
			printf("node %d extends %c's key to %d ticks\n", n + 1, name(c), left[n])
		:: else
		fi
	   }
	:: atomic {
#ifdef RELEASE_ANYONES          /* a release deletes the key without a look at its value */
		phase[c] == over && owner[n] != 0 ->
#else
		phase[c] == over && owner[n] == c + 1 ->
#endif
		printf("node %d runs %c's release of %c's key\n", n + 1, name(c), name(owner[n] - 1));
		lose(n)
	   }
	od
}

/* What happens to a node's memory. */
proctype memory(byte n) {
end:	do
	:: atomic {
		!MAY_LOSE && (owner[n] != 0 || mute[n] < QUARANTINE) ->
		lose(n); mute[n] = QUARANTINE;
		printf("node %d forgets its keys\n", n + 1)
	   }
	:: atomic {
		!MAY_LOSE && mute[n] < QUARANTINE ->
		mute[n] = QUARANTINE;
		printf("node %d starts again, with its keys\n", n + 1)
	   }
	:: atomic {
		MAY_LOSE && owner[n] != 0 ->
		lost[owner[n] - 1] = lost[owner[n] - 1] | (votes[owner[n] - 1] & bit(n));
		printf("node %d loses %c's key, and nobody notices\n", n + 1, name(owner[n] - 1));
		lose(n)
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
			countdown(left[i]); countdown(mute[i]); countdown(had[i]);
			if
			:: left[i] == 0 -> lose(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CLIENTS ->
			countdown(life[i]); countdown(next[i]);
			again[i] = (next[i] > 0 -> again[i] : 0);
			if
			:: (phase[i] == asking || phase[i] == holding && !MAY_STOP_LATE) && life[i] == 0 -> finish(i)
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
		for (n : 0 .. N - 1) {
			run memory(n)
		}
		for (c : 0 .. CLIENTS - 1) {
			run client(c);
			for (n : 0 .. N - 1) {
				run requests(c, n)
			}
		}
		c = 0; n = 0
	}
}
