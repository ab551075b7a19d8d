-------------------------------- MODULE Shared ------------------------------
\* Readers and a writer: shared.pml,
\* step by step, for those who read TLA+. What a step is for is said there.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Ttl,      \* of a key and of a reader, in ticks
  Switches  \* of shared.pml, such as {"NO_MARKER"}; {} drops nothing

VARIABLES node, client

On(switch) == switch \in Switches

Nodes    == 1..3
Quorum   == Cardinality(Nodes) \div 2 + 1
Believed == Ttl - 1
KeyLife  == Ttl - 1  \* by the fastest clock of a node

A       == 1  \* a writer that may become a reader
B       == 2  \* a reader that may extend
C       == 3  \* a reader
Clients == {A, B, C}

-----------------------------------------------------------------------------
Blank == [phase |-> "idle", reads |-> FALSE, life |-> 0, votes |-> {},
          next |-> 0, again |-> {},  \* of B's extension
          turned |-> {}]             \* nodes that made A a reader

\* What is left of a client that has stopped.
Over(state) == [Blank EXCEPT !.phase = "over", !.reads = state.reads]

Init ==
  /\ node = [n \in Nodes |-> [key |-> "none", left |-> 0, reader |-> [c \in Clients |-> 0]]]
  /\ client = [c \in Clients |-> Blank]

\* The key lives as long as the last reader, or by mistake as the first.
Marked(state) ==
  LET times == {state.reader[c] : c \in {c \in Clients : state.reader[c] > 0}}
      last  == CHOOSE t \in times : \A other \in times : t >= other
      first == CHOOSE t \in times : \A other \in times : t <= other
      left  == CASE On("FIRST_EXPIRY") /\ times = {} -> KeyLife
                 [] On("FIRST_EXPIRY")               -> IF first < KeyLife THEN first ELSE KeyLife
                 [] times = {}                       -> 0
                 [] OTHER                            -> last
  IN  [state EXCEPT !.left = left, !.key = IF left > 0 THEN "marker" ELSE "none"]

-----------------------------------------------------------------------------
(* Clients. *)

Ask(c) ==
  /\ client[c].phase = "idle"
  /\ client' = [client EXCEPT ![c].phase = "asking", ![c].life = Believed, ![c].reads = (c # A)]
  /\ UNCHANGED node

Win(c) ==
  /\ client[c].phase = "asking"
  /\ Cardinality(client[c].votes) >= Quorum
  /\ client' = [client EXCEPT ![c].phase = "holding", ![c].votes = {}]
  /\ UNCHANGED node

AskForExtension ==
  /\ client[B].phase = "holding"
  /\ client[B].next = 0
  /\ client' = [client EXCEPT ![B].next = Believed]
  /\ UNCHANGED node

Extend ==
  /\ client[B].next > 0
  /\ Cardinality(client[B].again) >= Quorum
  /\ client' = [client EXCEPT ![B].life = client[B].next, ![B].next = 0, ![B].again = {}]
  /\ UNCHANGED node

Downgrade ==
  /\ client[A].phase = "holding"
  /\ ~client[A].reads
  /\ client' = [client EXCEPT ![A].reads = TRUE]
  /\ UNCHANGED node

Stop(c) ==
  /\ client[c].phase \in {"asking", "holding"}
  /\ client' = [client EXCEPT ![c] = Over(@)]
  /\ UNCHANGED node

-----------------------------------------------------------------------------
(* What a node does with the requests of a client, at any time, again and again. *)

Voted(c, n) ==
  [client EXCEPT ![c].votes = IF client[c].phase = "asking" THEN @ \union {n} ELSE {}]

LetWrite(n) ==
  /\ client[A].phase # "idle"
  /\ node[n].key = "none"
  /\ node' = [node EXCEPT ![n].key = "value", ![n].left = KeyLife]
  /\ client' = Voted(A, n)

LetRead(c, n) ==
  /\ c # A
  /\ client[c].phase # "idle"
  /\ node[n].reader[c] = 0
  /\ node[n].key # "value"
  /\ LET joined == [node[n] EXCEPT !.reader[c] = KeyLife]
     IN  node' = [node EXCEPT ![n] = IF On("NO_MARKER") THEN joined ELSE Marked(joined)]
  /\ client' = Voted(c, n)

ExtendAt(n) ==
  /\ client[B].next > 0
  /\ node[n].key = "marker"
  /\ On("EXTEND_BLINDLY") \/ node[n].reader[B] > 0
  /\ node' = IF On("EXTEND_BLINDLY") THEN node
             ELSE [node EXCEPT ![n] = Marked([@ EXCEPT !.reader[B] = KeyLife])]
  /\ client' = [client EXCEPT ![B].again = @ \union {n}]

Turn(n) ==
  /\ client[A].reads
  /\ client[A].phase = "holding"
  /\ node[n].key = "value"
  /\ node' = [node EXCEPT ![n] = Marked([@ EXCEPT !.reader[A] = node[n].left])]
  /\ client' = [client EXCEPT ![A].turned = @ \union {n}]

ReleaseWriter(n) ==
  /\ client[A].phase = "over"
  /\ node[n].key = "value"
  /\ node' = [node EXCEPT ![n].key = "none", ![n].left = 0]
  /\ UNCHANGED client

ReleaseReader(c, n) ==
  /\ client[c].phase = "over"
  /\ node[n].reader[c] > 0
  /\ LET gone == [node[n] EXCEPT !.reader[c] = 0]
     IN  node' = [node EXCEPT ![n] = CASE On("LEAVE_DELETES")  -> [gone EXCEPT !.key = "none", !.left = 0]
                                       [] gone.key = "marker" -> Marked(gone)
                                       [] OTHER               -> gone]
  /\ UNCHANGED client

-----------------------------------------------------------------------------
(* Time. *)

Less(x) == IF x > 0 THEN x - 1 ELSE 0

Tick ==
  /\ node' = [n \in Nodes |->
       [key |-> IF node[n].left > 1 THEN node[n].key ELSE "none",
        left |-> Less(node[n].left), reader |-> [c \in Clients |-> Less(node[n].reader[c])]]]
  /\ client' = [c \in Clients |->
       IF client[c].life <= 1 /\ client[c].phase \in {"asking", "holding"} THEN Over(client[c])
       ELSE [client[c] EXCEPT !.life = Less(@), !.next = Less(@),
                              !.again = IF client[c].next > 1 THEN @ ELSE {}]]

Next ==
  \/ Tick
  \/ AskForExtension \/ Extend \/ Downgrade
  \/ \E c \in Clients : Ask(c) \/ Win(c) \/ Stop(c)
  \/ \E n \in Nodes : LetWrite(n) \/ ExtendAt(n) \/ Turn(n) \/ ReleaseWriter(n)
  \/ \E c \in Clients, n \in Nodes : LetRead(c, n) \/ ReleaseReader(c, n)

Spec == Init /\ [][Next]_<<node, client>>

-----------------------------------------------------------------------------
Holds(c) == client[c].phase = "holding"

Writes ==
  /\ Holds(A)
  /\ \/ ~client[A].reads
     \/ On("DOWNGRADE_WRITES") /\ Cardinality(client[A].turned) < Quorum

Exclusion == ~(Writes /\ (Holds(B) \/ Holds(C)))
=============================================================================
