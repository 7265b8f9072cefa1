------------------------------- MODULE Handed -------------------------------
(* Not built. Rows handed to the holder of a region: G puts a request, a stray fence with rows, at the free *)
(* position; the holder's next entry takes it up and names it; else G claims and looks first.     *)
EXTENDS Naturals, Sequences
CONSTANTS MaxLog, Breaks
VARIABLES log,           \* entries: kind, whether it has G's rows; what is below `gone` was collected
          after, gone, gen,      \* flushed up to here; collected up to here; G's rows are in a generation
          owner, next, taken,    \* "H", a native "N" or "G"; where H appends next; it has taken G's request up
          g, at, told, times     \* G's state, where its request is, what it was told, ghost: writes of its rows
vars == <<log, after, gone, gen, owner, next, taken, g, at, told, times>>
E(k, x) == [k |-> k, g |-> x]
Init == /\ log = <<>> /\ after = 0 /\ gone = 0 /\ gen = FALSE /\ owner \in {"H", "N"} /\ next = 1 /\ taken = FALSE
        /\ g = "idle" /\ at = 0 /\ told = "nothing" /\ times = 0
Room == Len(log) < MaxLog
Ask == /\ g = "idle" /\ Room /\ log' = Append(log, E("request", TRUE)) /\ at' = Len(log) + 1 /\ g' = "asked"
       /\ told' = (IF "ackAsked" \in Breaks THEN "written" ELSE told)
       /\ UNCHANGED <<after, gone, gen, owner, next, taken, times>>
(* The holder meets what is at its next position; its put lands only where nothing is. *)
Meet == /\ next <= Len(log) /\ next > gone /\ log[next].k # "fence" /\ next' = next + 1
        /\ taken' = (taken \/ log[next].k = "request") /\ UNCHANGED <<log, after, gone, gen, owner, g, at, told, times>>
Land == /\ owner = "H" /\ Room /\ next = Len(log) + 1 /\ log' = Append(log, E("rows", taken)) /\ next' = next + 1
        /\ times' = times + (IF taken THEN 1 ELSE 0) /\ taken' = FALSE
        /\ UNCHANGED <<after, gone, gen, owner, g, at, told>>
Native == /\ owner = "N" /\ Room /\ log' = Append(log, E("rows", FALSE))
          /\ UNCHANGED <<after, gone, gen, owner, next, taken, g, at, told, times>>
Flush == /\ \E c \in after + 1 .. Len(log) : /\ log[c].k = "rows" /\ after' = c
                                             /\ gen' = (gen \/ \E p \in after + 1 .. c : log[p].k = "rows" /\ log[p].g)
         /\ UNCHANGED <<log, gone, owner, next, taken, g, at, told, times>>
Collect == /\ gone < after /\ gone' = after /\ UNCHANGED <<log, after, gen, owner, next, taken, g, at, told, times>>
Named == \E p \in gone + 1 .. Len(log) : p > at /\ log[p].k = "rows" /\ log[p].g
See == /\ g = "asked" /\ Named /\ g' = "done" /\ told' = "written"
       /\ UNCHANGED <<log, after, gone, gen, owner, next, taken, at, times>>
Claim == /\ g = "asked" /\ Room /\ owner # "G" /\ owner' = "G" /\ log' = Append(log, E("fence", FALSE)) /\ g' = "claimed"
         /\ UNCHANGED <<after, gone, gen, next, taken, at, told, times>>
(* It looks for its name in the log from its request on; where that was collected, nobody knows. *)
Own == /\ g = "claimed" /\ g' = "done"
       /\ IF Named /\ "noLook" \notin Breaks THEN told' = "written" /\ UNCHANGED <<log, times>>
          ELSE IF gone > at /\ "assumeNot" \notin Breaks /\ "noLook" \notin Breaks THEN told' = "unknown" /\ UNCHANGED <<log, times>>
          ELSE /\ log' = Append(log, E("rows", TRUE)) /\ times' = times + 1 /\ told' = "written"
       /\ UNCHANGED <<after, gone, gen, owner, next, taken, at>>
(* The mutant does not claim: it asks once more under another name. *)
AskAgain == /\ "askAgain" \in Breaks /\ g = "asked" /\ Room /\ log' = Append(log, E("request", TRUE)) /\ at' = Len(log) + 1
            /\ UNCHANGED <<after, gone, gen, owner, next, taken, g, told, times>>
Next == Ask \/ Meet \/ Land \/ Native \/ Flush \/ Collect \/ See \/ Claim \/ Own \/ AskAgain
Spec == Init /\ [][Next]_vars
Once == times <= 1
Written == told = "written" => times >= 1 /\ (gen \/ \E p \in after + 1 .. Len(log) : log[p].k = "rows" /\ log[p].g)
=============================================================================
