------------------------------- MODULE Drop -------------------------------
(* drop_table of the home of a record, request by request (V5), beside a transaction over a region  *)
(* of home and one of each table that stays. It may be stopped anywhere, and is then called again.   *)
(* Verdict.tla has the drop as one step, and what logs and manifests say.                            *)
EXTENDS FiniteSets, TLC
CONSTANTS Tables, Breaks            \* those that stay
VARIABLES st, own, int,             \* the coordinator; who may write the region of home; intents that have landed
          rec, home, handed,        \* the record; the record of the table home; copies of the record, by table
          drop, listed,             \* where the drop is; the record that its listing had
          claim,                    \* by table: where the claimant of its region is, or the verdict it found
          reader                    \* a strong reader: its table, where it is, whether it began after the commit
vars == <<st, own, int, rec, home, handed, drop, listed, claim, reader>>
H == "home"
Sym == Permutations(Tables)
Init == /\ st = "put" /\ own = "P" /\ int = [t \in Tables \cup {H} |-> FALSE]
        /\ rec = "open" /\ home = "there" /\ handed = [t \in Tables |-> FALSE]
        /\ drop = "none" /\ listed = "open" /\ claim = [t \in Tables |-> "none"]
        /\ reader = [pc |-> "none"]
(* The coordinator. It claims home again if another one has: every claim looks for the mark.         *)
Own(t) == IF t = H THEN own = "P" ELSE claim[t] = "none"
Put(t) == /\ st = "put" /\ Own(t) /\ ~int[t] /\ int' = [int EXCEPT ![t] = TRUE]
          /\ UNCHANGED <<st, own, rec, home, handed, drop, listed, claim, reader>>
Again == /\ st = "put" /\ own = "D" /\ ~int[H] /\ (home = "there" \/ "noMark" \in Breaks) /\ own' = "P"
         /\ UNCHANGED <<st, int, rec, home, handed, drop, listed, claim, reader>>
Record == /\ st = "put" /\ \A t \in DOMAIN int : int[t]
          /\ st' = (IF rec = "open" THEN "yes" ELSE "no") /\ rec' = (IF rec = "open" THEN "yes" ELSE rec)
          /\ UNCHANGED <<own, int, home, handed, drop, listed, claim, reader>>
Crash == /\ st = "put" /\ st' = "no" /\ UNCHANGED <<own, int, rec, home, handed, drop, listed, claim, reader>>
(* T14 *)
Forget == /\ rec = "no" /\ st # "put" /\ rec' = "open"
          /\ UNCHANGED <<st, own, int, home, handed, drop, listed, claim, reader>>
(* The drop. *)
Drops == /\ UNCHANGED <<st, int, claim, reader>>
         /\ \/ /\ drop = "none" /\ drop' = (IF home # "left" THEN "fence" ELSE IF "endAnyway" \in Breaks THEN "delete" ELSE "list")
               /\ home' = (IF home = "left" THEN home ELSE "marked")
               /\ listed' = "open" /\ UNCHANGED <<own, rec, handed>>
            \/ /\ drop = "fence" /\ drop' = "settle" /\ own' = (IF "noFence" \in Breaks THEN own ELSE "D")
               /\ UNCHANGED <<rec, home, handed, listed>>
            \/ /\ drop = "settle" /\ drop' = "list"
               /\ rec' = (IF int[H] /\ rec = "open" /\ "dropOpen" \notin Breaks THEN "no" ELSE rec)
               /\ UNCHANGED <<own, home, handed, listed>>
            \/ /\ drop = "list" /\ listed' = rec
               /\ drop' = (IF home = "left" THEN "delete" ELSE IF "deleteFirst" \in Breaks THEN "leave" ELSE "hand")
               /\ UNCHANGED <<own, rec, home, handed>>
            \/ /\ drop = "hand" /\ UNCHANGED <<own, rec, home, listed>>
               /\ LET to == {t \in Tables : int[t] = ("handUnwritten" \notin Breaks)} IN
                  IF listed = "yes" /\ rec = "yes" /\ \E t \in to : ~handed[t]
                    THEN drop' = drop /\ \E t \in to : ~handed[t] /\ handed' = [handed EXCEPT ![t] = TRUE]
                    ELSE drop' = (IF "deleteFirst" \in Breaks THEN "end" ELSE "leave") /\ handed' = handed
            \/ /\ drop = "leave" /\ drop' = "delete" /\ home' = (IF "leaveLast" \in Breaks THEN home ELSE "left")
               /\ UNCHANGED <<own, rec, handed, listed>>
            \/ /\ drop = "delete" /\ drop' = (IF "deleteFirst" \in Breaks THEN "hand" ELSE "end")
               /\ rec' = (IF rec = "no" /\ listed = "no" /\ "dropAborted" \notin Breaks THEN rec ELSE "open")
               /\ UNCHANGED <<own, home, handed, listed>>
            \/ /\ drop = "end" /\ drop' = "done" /\ home' = "left" /\ UNCHANGED <<own, rec, handed, listed>>
            \/ /\ drop \notin {"none", "done"} /\ drop' = "none" /\ UNCHANGED <<own, rec, home, handed, listed>>
(* How a verdict is found: the record, whether home is there, what it has handed over. A record      *)
(* "aborted" may have been put where home is gone, in place of another one.                          *)
Next1(pc, t) == CASE pc = "ask" -> IF rec = "yes" THEN "yes" ELSE IF rec = "no" /\ "noWins" \in Breaks THEN "no" ELSE "gone"
                  [] pc = "gone" -> IF home = "left" THEN "handed" ELSE "open"
                  [] pc = "handed" -> IF handed[t] THEN "yes" ELSE "no"
(* T8: a claimant keeps others from writing, and then decides: it puts a record, where there is none,*)
(* and asks again whether home is there.                                                             *)
Claims(t) == /\ UNCHANGED <<st, own, int, home, handed, drop, listed, reader>>
             /\ \/ claim[t] = "none" /\ claim' = [claim EXCEPT ![t] = "ask"] /\ rec' = rec
                \/ claim[t] \in {"ask", "gone", "handed"} /\ rec' = rec
                   /\ claim' = [claim EXCEPT ![t] = IF int[t] THEN Next1(@, t) ELSE "no"]
                \/ claim[t] = "open" /\ rec' = (IF rec = "open" THEN "no" ELSE rec)
                   /\ claim' = [claim EXCEPT ![t] = IF rec = "yes" THEN "yes" ELSE IF "putWins" \in Breaks THEN "no" ELSE "sure"]
                \/ claim[t] = "sure" /\ rec' = rec
                   /\ claim' = [claim EXCEPT ![t] = IF home = "left" THEN "handed" ELSE "no"]
Reads == /\ UNCHANGED <<st, own, int, rec, home, handed, drop, listed, claim>>
         /\ \/ /\ reader.pc = "none"
               /\ \E t \in Tables : /\ int[t] /\ claim[t] \notin {"yes", "no"}
                                    /\ reader' = [pc |-> "ask", at |-> t, late |-> st = "yes"]
            \/ reader.pc \in {"ask", "gone", "handed"} /\ reader' = [reader EXCEPT !.pc = Next1(@, reader.at)]
            \/ reader.pc \in {"yes", "no", "open"} /\ reader' = [pc |-> "none"]
Next == \/ \E t \in Tables \cup {H} : Put(t)
        \/ Again \/ Record \/ Crash \/ Forget \/ Drops \/ Reads \/ \E t \in Tables : Claims(t)
Spec == Init /\ [][Next]_vars
(* A committed transaction is in every table that stays, and a refused one in none. *)
Here(t) == IF claim[t] \in {"yes", "no"} THEN claim[t]
           ELSE IF rec = "yes" THEN "yes"
           ELSE IF rec = "no" /\ "noWins" \in Breaks THEN "no"
           ELSE IF home = "left" THEN (IF handed[t] THEN "yes" ELSE "no") ELSE "open"
Acked == st = "yes" => \A t \in Tables : Here(t) = "yes"
Refused == st # "yes" => \A t \in Tables : Here(t) # "yes"
Fresh == /\ reader.pc \in {"no", "open"} => ~reader.late
         /\ reader.pc = "yes" => st = "yes"
=============================================================================
