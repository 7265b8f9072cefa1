-------------------------------- MODULE Txn --------------------------------
(* Transactions over regions (T1 to T9, T13, T14): an intent in the log of every participant, then *)
(* one record, put if absent, that says "committed". Without a record nothing is committed. A      *)
(* claimant puts "aborted" for an intent that has no record. Region.tla has how a region is claimed. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS Regions, Txns, Plains,    \* plain rows, written without a transaction
          Coords, Native,           \* coordinators; {"N"} where native code may claim regions
          Parts, Reads,             \* the participants of each transaction; those that it only reads
          New,                      \* regions that a coordinator has yet to create
          Crashes, Doubts,          \* whether processes die; whether the outcome of a record's put may be unknown
          MaxClaims, MaxFlushes, Breaks
VARIABLES log, owner,               \* by region: its entries; who claimed it last
          settled, claims,          \* by region: whether its claimant may append; number of claims
          rec, pos, dec,            \* by transaction: record, positions of intents, ghost: what was decided
          cur, phase, stopped,      \* by coordinator: transaction, state, regions whose writer stopped
          late, lateRec,            \* puts with an unknown outcome: intents, records
          after, gen, lastTxn, flushes,  \* the newest manifest of a region: replay_after, its flushed
                                         \* values, last_transaction; number of flushes
          acked, refused,           \* values that callers were told about
          rd                        \* the reader, TxnRead.tla
store == <<log, owner, settled, claims>>
coord == <<cur, phase, stopped, late, lateRec>>
mans == <<after, gen, lastTxn, flushes>>
vars == <<store, rec, pos, dec, coord, mans, acked, refused, rd>>
None == "none"
End(r) == Len(log[r])
Exists(r) == r \notin New \/ log[r] # <<>>
(* The values of Parts, Reads: all regions; a chain {a, b}, {b, c}; one region that is only read. *)
AllParts == [t \in Txns |-> Regions]
Chain == LET t1 == CHOOSE t \in Txns : TRUE   r1 == CHOOSE r \in Regions : TRUE
             r2 == CHOOSE r \in Regions \ {r1} : TRUE
         IN [t \in Txns |-> Regions \ {IF t = t1 THEN r1 ELSE r2}]
NoReads == [t \in Txns |-> {}]
OneRead == [t \in Txns |-> {CHOOSE r \in Regions : TRUE}]
(* Regions and transactions that can be exchanged: TLC looks at one of the states that differ by that. *)
Sym == {f \in Permutations(Regions \cup Txns) :
          \A t \in Txns : f[t] \in Txns /\ Parts[f[t]] = {f[r] : r \in Parts[t]} /\ Reads[f[t]] = {f[r] : r \in Reads[t]}}
(* An intent has rows, or holds a region that is only read: the latter has the form of a fence. *)
Kind(t, r) == IF r \in Reads[t] THEN "hold" ELSE "rows"
Written(t) == Parts[t] \ Reads[t]
IsIntent(e) == e.k \in {"rows", "hold"}
Is(r, p, t) == p > 0 /\ p <= End(r) /\ log[r][p] = [k |-> Kind(t, r), v |-> t]
Init == /\ log = [r \in Regions |-> <<>>] /\ owner = [r \in Regions |-> CHOOSE c \in Coords : TRUE]
        /\ settled = [r \in Regions |-> TRUE] /\ claims = 0
        /\ rec = [t \in Txns |-> None] /\ dec = [t \in Txns |-> None]
        /\ pos = [t \in Txns |-> [r \in Regions |-> 0]]
        /\ cur = [c \in Coords |-> None] /\ phase = [c \in Coords |-> "idle"]
        /\ stopped = [c \in Coords |-> {}] /\ late = {} /\ lateRec = {}
        /\ after = [r \in Regions |-> 0] /\ gen = [r \in Regions |-> {}]
        /\ lastTxn = [r \in Regions |-> 0] /\ flushes = 0 /\ acked = {} /\ refused = {}
        /\ rd = [on |-> FALSE, begin |-> {}, listed |-> New = {}, regions |-> {}, done |-> {},
                 end |-> [r \in Regions |-> 0], after |-> [r \in Regions |-> 0],
                 gen |-> [r \in Regions |-> {}], ver |-> [t \in Txns |-> "unk"]]
Create(c, r) == /\ ~Exists(r) /\ owner[r] = c /\ phase[c] = "idle"
                /\ log' = [log EXCEPT ![r] = <<[k |-> "fence", v |-> c]>>]
                /\ UNCHANGED <<owner, settled, claims, rec, pos, dec, coord, mans, acked, refused, rd>>
(* T1: the coordinator holds its participants: nothing else is appended to them until the end. *)
Used(t) == pos[t] # [r \in Regions |-> 0] \/ rec[t] # None \/ t \in refused \cup acked \cup lateRec
           \/ \E c \in Coords : cur[c] = t
Begin(c, t) == /\ cur[c] = None /\ phase[c] = "idle" /\ ~Used(t)
               /\ \A r \in Parts[t] : r \notin stopped[c] /\ settled[r] /\ Exists(r)
               /\ \E r \in Parts[t] : owner[r] = c   \* it may not know yet that it lost others
               /\ \A r \in Reads[t] : owner[r] = c   \* its conditions were checked in these
               /\ cur' = [cur EXCEPT ![c] = t] /\ phase' = [phase EXCEPT ![c] = "put"]
               /\ pos' = IF "noHold" \in Breaks   \* the end at the check stands in for the intent
                         THEN [pos EXCEPT ![t] = [r \in Regions |-> IF r \in Reads[t] THEN End(r) ELSE 0]]
                         ELSE pos
               /\ UNCHANGED <<store, rec, dec, stopped, late, lateRec, mans, acked, refused, rd>>
Lacks(t, r) == r \in Parts[t] /\ pos[t][r] = 0 /\ (r \in Written(t) \/ "noHold" \notin Breaks)
Put(c, t, r) == /\ cur[c] = t /\ phase[c] = "put" /\ Lacks(t, r)
                /\ IF owner[r] = c
                   THEN /\ log' = [log EXCEPT ![r] = Append(@, [k |-> Kind(t, r), v |-> t])]
                        /\ pos' = [pos EXCEPT ![t][r] = End(r) + 1] /\ UNCHANGED <<phase, stopped>>
                   ELSE /\ phase' = [phase EXCEPT ![c] = "abort"]      \* a fence is there
                        /\ stopped' = [stopped EXCEPT ![c] = @ \cup {r}] /\ UNCHANGED <<log, pos>>
                /\ UNCHANGED <<owner, settled, claims, rec, dec, cur, late, lateRec, mans, acked, refused, rd>>
(* Nobody says whether an intent landed: its region's writer stops. It may land until the next claim. *)
Unknown(c, t, r) == /\ cur[c] = t /\ phase[c] = "put" /\ Lacks(t, r) /\ late = {}
                    /\ late' = {<<c, t, r>>} /\ phase' = [phase EXCEPT ![c] = "abort"]
                    /\ stopped' = [stopped EXCEPT ![c] = @ \cup {r}]
                    /\ UNCHANGED <<store, rec, pos, dec, cur, lateRec, mans, acked, refused, rd>>
Late == \E x \in late : /\ owner[x[3]] = x[1] /\ pos[x[2]][x[3]] = 0 /\ late' = {}
        /\ log' = [log EXCEPT ![x[3]] = Append(@, [k |-> Kind(x[2], x[3]), v |-> x[2]])]
        /\ pos' = [pos EXCEPT ![x[2]][x[3]] = End(x[3]) + 1]
        /\ UNCHANGED <<owner, settled, claims, rec, dec, cur, phase, stopped, lateRec, mans, acked, refused, rd>>
(* T4: the record decides. Ghost "moved": a region that t read has got a row since the check. *)
Landed(t) == IF "ackEarly" \in Breaks THEN \E r \in Parts[t] : pos[t][r] > 0 ELSE \A r \in Parts[t] : ~Lacks(t, r)
Moved(t) == \E r \in Reads[t] : \E p \in pos[t][r] + 1 .. End(r) : log[r][p].k = "row"
Decide(t) == /\ rec' = [rec EXCEPT ![t] = "committed"]
             /\ dec' = [dec EXCEPT ![t] = IF Moved(t) THEN "moved" ELSE "committed"]
Record(c, t) == /\ cur[c] = t /\ phase[c] = "put" /\ Landed(t)
                /\ IF rec[t] = None THEN Decide(t) /\ phase' = [phase EXCEPT ![c] = "apply"]
                   ELSE phase' = [phase EXCEPT ![c] = "abort"] /\ UNCHANGED <<rec, dec>>
                /\ UNCHANGED <<store, pos, cur, stopped, late, lateRec, mans, acked, refused, rd>>
(* T13: nobody says whether the record landed: the writers of all participants stop. *)
InDoubt(c, t) == /\ Doubts /\ cur[c] = t /\ phase[c] = "put" /\ Landed(t) /\ lateRec' = {t}
                 /\ cur' = [cur EXCEPT ![c] = None] /\ phase' = [phase EXCEPT ![c] = "idle"]
                 /\ stopped' = IF "noStop" \in Breaks THEN stopped ELSE [stopped EXCEPT ![c] = @ \cup Parts[t]]
                 /\ UNCHANGED <<store, rec, pos, dec, late, mans, acked, refused, rd>>
LateRecord == \E t \in lateRec : /\ rec[t] = None /\ Decide(t) /\ lateRec' = {}
                                 /\ UNCHANGED <<store, pos, cur, phase, stopped, late, mans, acked, refused, rd>>
Apply(c, t) == /\ cur[c] = t /\ phase[c] = "apply" /\ acked' = acked \cup {t}
               /\ cur' = [cur EXCEPT ![c] = None] /\ phase' = [phase EXCEPT ![c] = "idle"]
               /\ UNCHANGED <<store, rec, pos, dec, stopped, late, lateRec, mans, refused, rd>>
Abort(c, t) == /\ cur[c] = t /\ phase[c] = "abort" /\ refused' = refused \cup {t}  \* T7: nothing is put
               /\ cur' = [cur EXCEPT ![c] = None] /\ phase' = [phase EXCEPT ![c] = "idle"]
               /\ UNCHANGED <<store, rec, pos, dec, stopped, late, lateRec, mans, acked, rd>>
Crash(c) == /\ Crashes /\ phase[c] # "dead" /\ phase' = [phase EXCEPT ![c] = "dead"] /\ cur' = [cur EXCEPT ![c] = None]
            /\ UNCHANGED <<store, rec, pos, dec, stopped, late, lateRec, mans, acked, refused, rd>>
Holds(c, r) == cur[c] # None /\ r \in Parts[cur[c]] /\ "noStall" \notin Breaks
Plain(c, w, r) == /\ owner[r] = c /\ Exists(r)
                  /\ IF c = "N" THEN TRUE ELSE phase[c] # "dead" /\ settled[r] /\ r \notin stopped[c] /\ ~Holds(c, r)
                  /\ w \notin acked /\ log' = [log EXCEPT ![r] = Append(@, [k |-> "row", v |-> w])]
                  /\ acked' = acked \cup {w}
                  /\ UNCHANGED <<owner, settled, claims, rec, pos, dec, coord, mans, refused, rd>>
(* T8: a claim puts a fence; then what has no record is settled; only then rows may follow. *)
Undecided(r) == {t \in Txns : /\ rec[t] = None /\ pos[t][r] > after[r] /\ Is(r, pos[t][r], t)
                              /\ (r \in Written(t) \/ "holdNoSettle" \notin Breaks)}
Claim(c, r) == /\ claims < MaxClaims /\ Exists(r)
               /\ owner[r] # c \/ (c # "N" /\ r \in stopped[c])
               /\ IF c = "N" THEN TRUE ELSE phase[c] = "idle"
               /\ owner' = [owner EXCEPT ![r] = c] /\ claims' = claims + 1
               /\ settled' = [settled EXCEPT ![r] = Undecided(r) = {} \/ c = "N" \/ "noSettle" \in Breaks]
               /\ log' = [log EXCEPT ![r] = Append(@, [k |-> "fence", v |-> c])]
               /\ stopped' = IF c = "N" THEN stopped ELSE [stopped EXCEPT ![c] = @ \ {r}]
               /\ late' = {x \in late : x[3] # r}   \* its position is taken
               /\ UNCHANGED <<rec, pos, dec, cur, phase, lateRec, mans, acked, refused, rd>>
Settle(r, t) == /\ ~settled[r] /\ t \in Undecided(r)
                /\ rec' = [rec EXCEPT ![t] = "aborted"] /\ dec' = [dec EXCEPT ![t] = "aborted"]
                /\ settled' = [settled EXCEPT ![r] = Undecided(r) = {t}]
                /\ UNCHANGED <<log, owner, claims, pos, coord, mans, acked, refused, rd>>
Settled(r) == /\ ~settled[r] /\ Undecided(r) = {} /\ settled' = [settled EXCEPT ![r] = TRUE]
              /\ UNCHANGED <<log, owner, claims, rec, pos, dec, coord, mans, acked, refused, rd>>
(* A flush takes rows up to c, all of them decided. Its manifest says where its last intent was. *)
Early == "flushUndecided" \in Breaks
Counts(r, p) == \/ log[r][p].k = "row"
                \/ log[r][p].k = "rows" /\ (rec[log[r][p].v] = "committed" \/ owner[r] = "N" \/ Early)
Passes(r, p) == Counts(r, p) \/ (log[r][p].k = "hold" /\ rec[log[r][p].v] = "committed" /\ "holdNoTxn" \notin Breaks)
Applied(r) == LET c == owner[r] IN
              IF c # "N" /\ cur[c] # None /\ pos[cur[c]][r] > 0 /\ ~Early THEN pos[cur[c]][r] - 1 ELSE End(r)
Flush(r) == /\ flushes < MaxFlushes /\ settled[r]
            /\ IF owner[r] = "N" THEN TRUE ELSE phase[owner[r]] # "dead"
            /\ \E c \in after[r] + 1 .. Applied(r) :
                 /\ Counts(r, c)
                 /\ LET new == {p \in after[r] + 1 .. c : Counts(r, p)}
                        ints == {p \in after[r] + 1 .. c : IsIntent(log[r][p]) /\ Passes(r, p)} IN
                    /\ gen' = [gen EXCEPT ![r] = @ \cup {log[r][p].v : p \in new}]
                    /\ lastTxn' = [lastTxn EXCEPT ![r] = IF ints = {} THEN @ ELSE CHOOSE p \in ints : \A q \in ints : p >= q]
                 /\ after' = [after EXCEPT ![r] = c]
            /\ flushes' = flushes + 1 /\ UNCHANGED <<store, rec, pos, dec, coord, acked, refused, rd>>
(* T14: a record goes when all entries that name it are flushed; "aborted" when its writer is over. *)
Forget(t) == /\ rec[t] # None /\ rec' = [rec EXCEPT ![t] = None]
             /\ IF rec[t] = "committed"
                THEN IF "recEarly" \in Breaks THEN \E r \in Parts[t] : pos[t][r] <= after[r] /\ pos[t][r] > 0
                     ELSE \A r \in Parts[t] : pos[t][r] <= after[r]
                ELSE "recForget" \in Breaks \/ (t \notin lateRec /\ \A c \in Coords : cur[c] # t)
             /\ UNCHANGED <<store, pos, dec, coord, mans, acked, refused, rd>>
Writes == \/ \E c \in Coords : Crash(c) \/ \E t \in Txns : Begin(c, t) \/ Record(c, t) \/ InDoubt(c, t) \/ Apply(c, t)
                               \/ Abort(c, t) \/ \E r \in Regions : Put(c, t, r) \/ Unknown(c, t, r)
          \/ Late \/ LateRecord \/ \E c \in Coords, r \in Regions : Create(c, r)
          \/ \E c \in Coords \cup Native, w \in Plains, r \in Regions : Plain(c, w, r)
          \/ \E r \in Regions : Flush(r) \/ Settled(r) \/ \E c \in Coords \cup Native : Claim(c, r)
                                \/ \E t \in Txns : Settle(r, t)
          \/ \E t \in Txns : Forget(t)
There(t, r) == t \in gen[r] \/ (pos[t][r] > after[r] /\ Is(r, pos[t][r], t) /\ rec[t] = "committed")
AckedStays == \A t \in acked \cap Txns : \A r \in Written(t) : There(t, r)
PlainStays == \A w \in acked \cap Plains : \E r \in Regions : w \in gen[r] \/ \E p \in after[r] + 1 .. End(r) : log[r][p].v = w
Refused == \A t \in refused : dec[t] \notin {"committed", "moved"} /\ \A r \in Regions : t \notin gen[r]
Whole == \A t \in Txns : (\E r \in Regions : t \in gen[r]) =>
           dec[t] \in {"committed", "moved"} /\ \A r \in Written(t) : There(t, r)
Settles == \A r \in Regions : ~settled[r] => (Undecided(r) = {} \/ \E t \in Undecided(r) : ENABLED Settle(r, t))
Unmoved == \A t \in Txns : dec[t] # "moved"
=============================================================================
