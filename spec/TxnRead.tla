------------------------------ MODULE TxnRead ------------------------------
(* Strong readers of Txn.tla (T10 to T12): all or nothing of each transaction, and all that was    *)
(* acknowledged before the query began.                                                            *)
EXTENDS Txn
(* The reader has loaded some regions, and the newest manifests of some; it lists new regions while *)
(* it looks at the tails one after the other. Then it asks for the records; then it cuts.           *)
Unlisted == New = {} \/ "noList" \in Breaks
BeginRead == /\ ~rd.on /\ \E S, K \in SUBSET Regions :
                /\ K \subseteq {r \in New : Exists(r)}
                /\ S \subseteq (Regions \ New) \cup K
                /\ rd' = [rd EXCEPT !.on = TRUE, !.begin = acked, !.listed = Unlisted,
                                 !.regions = (Regions \ New) \cup K,
                                 !.after = [r \in Regions |-> IF r \in S THEN after[r] ELSE 0],
                                 !.gen = [r \in Regions |-> IF r \in S THEN gen[r] ELSE {}]]
             /\ UNCHANGED <<store, rec, pos, dec, coord, mans, acked, refused>>
List == /\ rd.on /\ ~rd.listed
        /\ rd' = [rd EXCEPT !.listed = TRUE, !.regions = {r \in Regions : Exists(r)}]
        /\ UNCHANGED <<store, rec, pos, dec, coord, mans, acked, refused>>
(* T11: a look that finds a flushed transaction which it did not have begins again elsewhere. *)
Look(r) == /\ rd.on /\ r \in rd.regions \ rd.done
           /\ LET first == r \in New /\ rd.end[r] = 0 /\ rd.after[r] = 0
                  jump == /\ lastTxn[r] > rd.after[r] /\ "noJump" \notin Breaks
                          /\ ~(first /\ "firstNoJump" \in Breaks) IN
              rd' = [rd EXCEPT !.after[r] = after[r], !.gen[r] = gen[r], !.end[r] = End(r),
                               !.done = IF jump THEN {r} ELSE @ \cup {r},
                               !.listed = IF jump /\ "noRelist" \notin Breaks THEN Unlisted ELSE @,
                               !.ver = [t \in Txns |-> "unk"]]
           /\ UNCHANGED <<store, rec, pos, dec, coord, mans, acked, refused>>
Looked == rd.on /\ rd.listed /\ rd.done = rd.regions
InTail(t, r) == pos[t][r] > rd.after[r] /\ pos[t][r] <= rd.end[r] /\ Is(r, pos[t][r], t)
Asked(t) == \E r \in Regions : InTail(t, r)
(* T10: no record: if the intent was flushed meanwhile look again, else it was not committed then. *)
Get(t) == /\ Looked /\ Asked(t) /\ rd.ver[t] = "unk"
          /\ rd' = IF rec[t] # None THEN [rd EXCEPT !.ver[t] = rec[t]]
                   ELSE IF "noAgain" \notin Breaks /\ \E r \in Regions : InTail(t, r) /\ after[r] >= pos[t][r]
                   THEN [rd EXCEPT !.done = {}, !.listed = Unlisted]
                   ELSE [rd EXCEPT !.ver[t] = "absent"]
          /\ UNCHANGED <<store, rec, pos, dec, coord, mans, acked, refused>>
(* T12. A region that is only read is a part too. *)
Cuttable(t, r) == r \in Written(t) \/ "holdNoCut" \notin Breaks
In(c, t, r) == InTail(t, r) /\ pos[t][r] <= c[r] /\ Cuttable(t, r)
Open(c, t) == /\ rd.ver[t] = "committed" /\ "noCut" \notin Breaks
              /\ (\E r \in Parts[t] : In(c, t, r)) /\ (\E r \in Parts[t] \cap rd.regions : pos[t][r] > c[r])
(* Rows of native code, which settles nothing, may stand behind a fence: no fence is cut off. *)
FenceOpen == \E t \in Txns : /\ Open(rd.end, t) /\ "cutFences" \notin Breaks
             /\ \E r \in Parts[t] : In(rd.end, t, r) /\ \E p \in pos[t][r] .. rd.end[r] : log[r][p].k = "fence"
(* A part in a region that the reader has not loaded: the region is new. *)
Stranger == \E t \in Txns : rd.ver[t] = "committed" /\ ~(Parts[t] \subseteq rd.regions) /\ "noStranger" \notin Breaks
Again == /\ Looked /\ (FenceOpen \/ Stranger)
         /\ rd' = [rd EXCEPT !.done = {}, !.listed = Unlisted, !.ver = [t \in Txns |-> "unk"]]
         /\ UNCHANGED <<store, rec, pos, dec, coord, mans, acked, refused>>
Next == Writes \/ BeginRead \/ List \/ Again \/ (\E r \in Regions : Look(r)) \/ (\E t \in Txns : Get(t))
Spec == Init /\ [][Next]_vars
RECURSIVE Cut(_)
Cut(c) == IF ~\E t \in Txns : Open(c, t) THEN c
          ELSE LET t == CHOOSE t \in Txns : Open(c, t)
               IN Cut([r \in Regions |-> IF In(c, t, r) THEN pos[t][r] - 1 ELSE c[r]])
Final == Looked /\ ~FenceOpen /\ ~Stranger /\ \A t \in Txns : Asked(t) => rd.ver[t] # "unk"
Going == ~Final   \* what happens after a reader's end is not followed
Sees(r) == rd.gen[r] \cup {log[r][p].v : p \in {p \in rd.after[r] + 1 .. Cut(rd.end)[r] :
             log[r][p].k = "row" \/ (log[r][p].k = "rows" /\ rd.ver[log[r][p].v] = "committed")}}
Atomic == Final => \A t \in Txns : (\E r \in Written(t) : t \in Sees(r)) => \A r \in Written(t) : t \in Sees(r)
Fresh == Final => \A x \in rd.begin : \E r \in Regions : x \in Sees(r)
(* Who sees a row that was written to a region after t had read it sees t. *)
Behind(t) == \E r \in Reads[t] : \E p \in pos[t][r] + 1 .. End(r) : log[r][p].k = "row" /\ log[r][p].v \in Sees(r)
Serial == Final => \A t \in Txns : dec[t] = "committed" /\ Behind(t) => \A r \in Written(t) : t \in Sees(r)
=============================================================================
