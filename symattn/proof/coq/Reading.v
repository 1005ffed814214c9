(* From an accepted equation to the statement that a reader expects, over functions of natural numbers: the entry (i, j)
   of an array is s i j, and a sum over an index is [sum]. The tactic gives the equation the arrays, functions and places
   that the statement speaks of, and finds its hypotheses among those of the statement. *)
From Coq Require Import Reals List Arith ZArith Lia Lra.
From Symattn Require Export Meaning Accepting Bounding.
Import ListNotations.
Open Scope R_scope.

Ltac cases := repeat match goal with |- context [match ?x with _ => _ end] => destruct x end.
Ltac given := match goal with H : _ |- _ => solve [exact H | apply H | eapply H; eassumption] end.
Ltac holds_in_world :=
  split; [|split];
  [ repeat (let s := fresh in intros [|s]; [assumption|]; revert s); intros; lia
  | intros ? I at_; repeat (destruct I as [<-|I]; [cbn; cases; first [lra | given]|]); destruct I
  | intros ? ? I at_; repeat (destruct I as [E|I]; [injection E as <- <-; cbn; cases; first [lra | given]|]); destruct I ].
Ltac is_placed := repeat (apply Forall2_cons; [eexists; split; [reflexivity|assumption]|]); apply Forall2_nil.
Ltac is_defined := cbn; repeat match goal with |- _ /\ _ => split | |- True => exact I | |- forall _, _ => intro end; try given.
Ltac read accepted size letter function env :=
  apply (accepts_ok _ _ _ _ _ _ _ _ accepted size letter function ltac:(holds_in_world) env ltac:(is_placed)
    ltac:(is_defined) ltac:(is_defined)).
Ltac is_least := intros ? I at_; repeat (destruct I as [<-|I]; [cbn; cases; first [lra | given]|]); destruct I.
Ltac is_given :=
  intros ? I ? P; repeat (destruct I as [<-|I]; [cbn in P;
    repeat match goal with H : Forall2 _ _ _ |- _ => inversion H; clear H; subst end;
    repeat match goal with H : placed _ _ _ |- _ => destruct H as [? [-> ?]] end; cbn; given|]); destruct I.
Ltac read_bound accepted size letter function env :=
  apply (bounds_ok _ _ _ _ _ _ _ _ _ _ _ accepted size letter function ltac:(holds_in_world) ltac:(is_least)
    ltac:(is_given) env
    ltac:(is_placed) ltac:(is_defined) ltac:(is_defined)).
Ltac read_sign accepted size letter function env :=
  apply (above_0_ok _ nil _ accepted size letter function ltac:(holds_in_world) env).
