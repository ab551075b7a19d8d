-------------------------------- MODULE Fence -------------------------------
\* Fencing tokens: fence.pml,
\* step by step, for those who read TLA+. What a step is for is said there.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Highest,  \* of the numbers that may be proposed, from 1
  Clients,  \* such as {1, 2, 3}
  Switches  \* of fence.pml, such as {"NO_CHECK"}; {} drops nothing

VARIABLES
  counter,  \* the highest number that a node has accepted
  seen,     \* the highest token that the resource has seen
  client,
  \* What the promises speak of.
  had,      \* clients that have a token
  before,   \* those that had theirs before a client asked
  wrote,    \* clients whose write was taken
  late      \* a write was taken behind one of a client that asked when this one had its token

vars == <<counter, seen, client, had, before, wrote, late>>

On(switch) == switch \in Switches

Nodes  == 1..3
Quorum == Cardinality(Nodes) \div 2 + 1
Max(a, b) == IF a > b THEN a ELSE b

Init ==
  /\ counter = [n \in Nodes |-> 0]
  /\ seen = 0
  /\ client = [c \in Clients |-> [phase |-> "idle", token |-> 0, accepted |-> {}]]
  /\ had = {} /\ wrote = {} /\ late = FALSE
  /\ before = [c \in Clients |-> {}]

-----------------------------------------------------------------------------
(* Clients. *)

Ask(c) ==
  /\ client[c].phase = "idle"
  /\ \E token \in (IF On("INCR_AND_MAX") THEN {0} ELSE 1..Highest) :
       client' = [client EXCEPT ![c].phase = "asking", ![c].token = token]
  /\ before' = [before EXCEPT ![c] = had]
  /\ UNCHANGED <<counter, seen, had, wrote, late>>

Win(c) ==
  /\ client[c].phase \in {"asking", "raising"}
  /\ Cardinality(client[c].accepted) >= Quorum
  /\ client' = [client EXCEPT ![c].phase = "granted", ![c].accepted = {}]
  /\ had' = had \union {c}
  /\ UNCHANGED <<counter, seen, before, wrote, late>>

Raise(c) ==
  /\ ~On("INCR_AND_MAX")
  /\ client[c].phase = "asking"
  /\ \E token \in client[c].token + 1 .. Highest :
       client' = [client EXCEPT ![c].phase = "raising", ![c].token = token,
                                ![c].accepted = IF On("COUNT_TOGETHER") THEN @ ELSE {}]
  /\ UNCHANGED <<counter, seen, had, before, wrote, late>>

Write(c) ==
  /\ client[c].phase = "granted"
  /\ On("NO_CHECK") \/ client[c].token >= seen
  /\ late' = (late \/ \E d \in wrote : c \in before[d])
  /\ wrote' = wrote \union {c}
  /\ seen' = Max(seen, client[c].token)
  /\ UNCHANGED <<counter, client, had, before>>

-----------------------------------------------------------------------------
(* What a node does with the requests of a client, at any time, again and again. *)

Accept(c, n) ==
  /\ ~On("INCR_AND_MAX")
  /\ client[c].phase # "idle"
  /\ IF On("ACCEPT_EQUAL") THEN client[c].token >= counter[n] ELSE client[c].token > counter[n]
  /\ counter' = [counter EXCEPT ![n] = client[c].token]
  /\ client' = IF client[c].phase = "granted" THEN client
               ELSE [client EXCEPT ![c].accepted = @ \union {n}]
  /\ UNCHANGED <<seen, had, before, wrote, late>>

Count(c, n) ==
  /\ On("INCR_AND_MAX")
  /\ client[c].phase = "asking"
  /\ n \notin client[c].accepted
  /\ counter[n] < Highest
  /\ counter' = [counter EXCEPT ![n] = @ + 1]
  /\ client' = [client EXCEPT ![c].token = Max(@, counter[n] + 1), ![c].accepted = @ \union {n}]
  /\ UNCHANGED <<seen, had, before, wrote, late>>

LoseCounter(n) ==
  /\ On("COUNTER_LOST")
  /\ counter[n] > 0
  /\ counter' = [counter EXCEPT ![n] = 0]
  /\ UNCHANGED <<seen, client, had, before, wrote, late>>

Next ==
  \/ \E c \in Clients :
       \/ Ask(c) \/ Win(c) \/ Raise(c) \/ Write(c)
       \/ \E n \in Nodes : Accept(c, n) \/ Count(c, n)
  \/ \E n \in Nodes : LoseCounter(n)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* P2
Unique == \A c, d \in had : c # d => client[c].token # client[d].token
Rising == \A c \in had : \A d \in before[c] : client[c].token > client[d].token
InTurn == ~late
=============================================================================
