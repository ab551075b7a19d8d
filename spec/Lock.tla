-------------------------------- MODULE Lock --------------------------------
\* The lock and its memory guard, with plain locks and extensions: lock.pml,
\* step by step, for those who read TLA+. What a step is for is said there.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Ttl,      \* of the key, in ticks
  Clients,  \* 1..2 or 1..3; the first extends its lock
  Switches  \* of lock.pml, such as {"NO_GUARD"}; {} drops nothing

VARIABLES node, client

On(switch) == switch \in Switches

Nodes     == 1..3
Allowance == 1
Believed  == Ttl - Allowance
KeyLife   == Ttl - (IF On("CLOCKS_OFF") THEN 2 ELSE 1)

Quarantine ==
  CASE On("NO_GUARD")         -> 0
    [] On("SHORT_QUARANTINE") -> Believed - 1
    [] OTHER                  -> Believed

Half      == Cardinality(Nodes) \div 2
Majority  == IF On("HALF_IS_QUORUM") THEN Half ELSE Half + 1
Quorum(c) == IF On("OTHER_NODES") /\ c = 2 THEN 1 ELSE Majority
Asks(c, n) == On("OTHER_NODES") => c = 1 \/ n = 1

Unnoticed == On("UNNOTICED") \/ On("TOO_MANY_FORGET")

-----------------------------------------------------------------------------
Blank  == [phase |-> "idle", life |-> 0, votes |-> {}, next |-> 0, again |-> {}, lost |-> {}]
Over   == [Blank EXCEPT !.phase = "over"]
NoKey(state) == [state EXCEPT !.owner = 0, !.left = 0]

Init ==
  /\ node = [n \in Nodes |-> [owner |-> 0, left |-> 0, mute |-> 0, had |-> 0]]
  /\ client = [c \in Clients |-> Blank]

\* What the first client knows of its keys ends with its lock.
Forgotten(nodes, c) == IF c = 1 THEN [n \in Nodes |-> [nodes[n] EXCEPT !.had = 0]] ELSE nodes

-----------------------------------------------------------------------------
(* Clients. *)

Ask(c) ==
  /\ client[c].phase = "idle"
  /\ client' = [client EXCEPT ![c].phase = "asking", ![c].life = Believed]
  /\ UNCHANGED node

Win(c) ==
  /\ client[c].phase = "asking"
  /\ client[c].life > 0
  /\ Cardinality(client[c].votes) >= Quorum(c)
  /\ client' = [client EXCEPT ![c].phase = "holding",
                              ![c].life = IF On("COUNT_FROM_GRANT") THEN Believed ELSE @,
                              ![c].votes = IF Unnoticed THEN @ ELSE {}]
  /\ UNCHANGED node

AskForExtension(c) ==
  /\ c = 1
  /\ client[c].phase = "holding"
  /\ client[c].life > 0
  /\ client[c].next = 0
  /\ client' = [client EXCEPT ![c].next = Believed]
  /\ UNCHANGED node

Extend(c) ==
  /\ client[c].next > 0
  /\ Cardinality(client[c].again) >= Quorum(c)
  /\ client' = [client EXCEPT ![c].life = client[c].next, ![c].next = 0, ![c].again = {}]
  /\ UNCHANGED node

Stop(c) ==
  /\ client[c].phase \in {"asking", "holding"}
  /\ client' = [client EXCEPT ![c] = Over]
  /\ node' = Forgotten(node, c)

-----------------------------------------------------------------------------
(* What a node does with the requests of a client, at any time, again and again. *)

Grant(c, n) ==
  /\ client[c].phase # "idle"
  /\ Asks(c, n)
  /\ node[n].owner = 0
  /\ LET counts == node[n].mute = 0
         knows  == counts /\ c = 1 /\ client[c].phase \in {"asking", "holding"}
     IN  /\ node' = [node EXCEPT ![n].owner = c, ![n].left = KeyLife,
                                 ![n].had = IF knows THEN Believed ELSE @]
         /\ client' = IF counts /\ client[c].phase = "asking"
                      THEN [client EXCEPT ![c].votes = @ \union {n}, ![c].lost = @ \ {n}]
                      ELSE client

ExtendAt(c, n) ==
  /\ client[c].next > 0
  /\ node[n].owner = c
  /\ LET counts == On("MUTE_EXTENDS") \/ node[n].mute = 0 \/ node[n].had > 0
     IN  /\ node' = [node EXCEPT ![n].left = KeyLife, ![n].had = IF counts THEN Believed ELSE @]
         /\ client' = IF counts THEN [client EXCEPT ![c].again = @ \union {n}] ELSE client

Release(c, n) ==
  /\ client[c].phase = "over"
  /\ node[n].owner # 0
  /\ On("RELEASE_ANYONES") \/ node[n].owner = c
  /\ node' = [node EXCEPT ![n] = NoKey(@)]
  /\ UNCHANGED client

-----------------------------------------------------------------------------
(* What happens to a node's memory. *)

Forget(n) ==
  /\ ~Unnoticed
  /\ node[n].owner # 0 \/ node[n].mute < Quarantine
  /\ node' = [node EXCEPT ![n] = [NoKey(@) EXCEPT !.mute = Quarantine]]
  /\ UNCHANGED client

Restart(n) ==
  /\ ~Unnoticed
  /\ node[n].mute < Quarantine
  /\ node' = [node EXCEPT ![n].mute = Quarantine]
  /\ UNCHANGED client

LoseUnnoticed(n) ==
  /\ Unnoticed
  /\ node[n].owner # 0
  /\ LET c == node[n].owner
     IN  client' = [client EXCEPT ![c].lost = @ \union (client[c].votes \intersect {n})]
  /\ node' = [node EXCEPT ![n] = NoKey(@)]

-----------------------------------------------------------------------------
(* Time. *)

Less(x) == IF x > 0 THEN x - 1 ELSE 0

Tick ==
  LET aged(c) == [client[c] EXCEPT !.life = Less(@), !.next = Less(@),
                                   !.again = IF client[c].next > 1 THEN @ ELSE {}]
      ends(c) == /\ aged(c).life = 0
                 /\ \/ client[c].phase = "asking"
                    \/ client[c].phase = "holding" /\ ~On("IGNORE_DEADLINE")
      older(n) == [owner |-> IF node[n].left > 1 THEN node[n].owner ELSE 0,
                   left |-> Less(node[n].left), mute |-> Less(node[n].mute), had |-> Less(node[n].had)]
  IN  /\ client' = [c \in Clients |-> IF ends(c) THEN Over ELSE aged(c)]
      /\ node' = IF ends(1) THEN Forgotten([n \in Nodes |-> older(n)], 1) ELSE [n \in Nodes |-> older(n)]

Next ==
  \/ Tick
  \/ \E c \in Clients :
       \/ Ask(c) \/ Win(c) \/ AskForExtension(c) \/ Extend(c) \/ Stop(c)
       \/ \E n \in Nodes : Grant(c, n) \/ ExtendAt(c, n) \/ Release(c, n)
  \/ \E n \in Nodes : Forget(n) \/ Restart(n) \/ LoseUnnoticed(n)

Spec == Init /\ [][Next]_<<node, client>>

-----------------------------------------------------------------------------
\* P1 bears fewer than h+q-N nodes that forget unnoticed, where h nodes voted for the lock.
Promised(c) ==
  On("UNNOTICED") =>
    Cardinality(client[c].lost) + Cardinality(Nodes) < Cardinality(client[c].votes) + Majority

Holders == {c \in Clients : client[c].phase = "holding" /\ Promised(c)}

P1 == Cardinality(Holders) <= 1
=============================================================================
