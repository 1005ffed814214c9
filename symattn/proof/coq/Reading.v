(* From an accepted equation to the statement that a reader expects, over functions of natural numbers: the entry (i, j)
   of an array is s i j, and a sum over an index is [sum]. The tactic gives the equation the arrays, functions and places
   that the statement speaks of, and finds its hypotheses among those of the statement. *)
From Coq Require Import Reals List Arith ZArith Lia Lra.
From Symattn Require Export Meaning Accepting Bounding Folding.
From Symattn Require Import Clearing.
Import ListNotations.
Open Scope R_scope.

Ltac cases := repeat match goal with |- context [match ?x with _ => _ end] => destruct x end.
Ltac given := match goal with H : _ |- _ => solve [exact H | apply H | eapply H; eassumption] end.
Ltac holds_in_world :=
  split; [|split];
  [ repeat (let s := fresh in intros [|s]; [assumption|]; revert s); intros; exact Nat.lt_0_1
  | intros ? I at_; repeat (destruct I as [<-|I]; [cbn; cases; first [lra | given]|]); destruct I
  | intros ? ? I at_; repeat (destruct I as [E|I]; [injection E as <- <-; cbn; cases; first [lra | given]|]); destruct I ].
Ltac is_placed := repeat (apply Forall2_cons; [eexists; split; [reflexivity|assumption]|]); apply Forall2_nil.
Ltac has_divisors := cbn; repeat match goal with |- _ /\ _ => split | |- True => exact I | |- forall _, _ => intro end; try given.
(* Most divide only by what is more than 0 by its form, which is seen by computation. *)
Lemma defined_by_form plus size letter function env e : sure plus e = true -> defined plus size letter function env e.
Proof. intro. now apply sure_defined. Qed.
Ltac is_defined := first [ apply defined_by_form; vm_compute; reflexivity | has_divisors ].
Ltac read accepted size letter function env :=
  apply (accepts_ok _ _ _ _ _ _ _ _ accepted size letter function ltac:(holds_in_world) env ltac:(is_placed)
    ltac:(is_defined) ltac:(is_defined)).
Ltac is_least := intros ? I at_; repeat (destruct I as [<-|I]; [cbn; cases; first [lra | given]|]); destruct I.
Lemma entry (f : nat -> R) n i : (i < n)%nat -> In (f i) (map f (seq 0 n)).
Proof. intro H. apply (in_map f), in_seq. lia. Qed.
Lemma magnitude (sign : R -> R) : (forall x, sign x * x = Rabs x) -> forall x,
  0 <= sign x * x /\ x <= sign x * x /\ - x <= sign x * x.
Proof.
  intros H x. rewrite H. pose proof (Rabs_pos x). pose proof (Rle_abs x). pose proof (Rle_abs (- x)). rewrite Rabs_Ropp in *. lra.
Qed.
(* What is not negative by a law of a maximum, of |x| = sign x · x, or of a function between −1 and 1. *)
Ltac learn fact := let T := type of fact in let T := eval cbv beta in T in
  match goal with _ : T |- _ => fail 1 | _ => pose proof (fact : T) end.
Ltac is_member f H :=
  first [ exact (entry f _ _ H) | apply in_or_app; left; is_member f H | apply in_or_app; right; is_member f H
        | right; is_member f H ].
Ltac learn_entry max U l :=
  match l with context [map ?f (seq 0 ?n)] =>
    match goal with H : (?i < n)%nat |- _ =>
      let I := fresh in assert (I : In (f i) l) by is_member f H; learn (U l (f i) I); clear I
    end
  end.
Ltac learn_laws := repeat match goal with
  | U : (forall l x, In x l -> x <= ?max l) |- context [?max ?l] => learn_entry max U l
  | U : (forall l x, In x l -> x <= ?max l), _ : context [?max ?l] |- _ => learn_entry max U l
  | M : (forall x, ?sign x * x = Rabs x) |- context [?sign ?z] => learn (magnitude sign M z)
  | M : (forall x, ?sign x * x = Rabs x), _ : context [?sign ?z] |- _ => learn (magnitude sign M z)
  | B : (forall x, -1 <= ?f x <= 1) |- context [?f ?z] => learn (B z)
  end.
(* For any norm, ‖Σ_j p_j v_j‖ ≤ Σ_j p_j ‖v_j‖ where no p_j is negative. *)
Lemma norm_of_sum (norm : list R -> R) :
  (forall d f g, norm (map (fun i => f i + g i) (seq 0 d)) <=
    norm (map (fun i => f i) (seq 0 d)) + norm (map (fun i => g i) (seq 0 d))) ->
  (forall d t f, norm (map (fun i => t * f i) (seq 0 d)) = Rabs t * norm (map (fun i => f i) (seq 0 d))) ->
  forall d n (p : nat -> R) (v : nat -> nat -> R), (forall j, 0 <= p j) ->
  norm (map (fun i => sum n (fun j => p j * v j i)) (seq 0 d)) <= sum n (fun j => p j * norm (map (fun i => v j i) (seq 0 d))).
Proof.
  intros T S d n p v P. induction n; cbn [sum].
  - right. transitivity (norm (map (fun _ => 0 * 0) (seq 0 d))); [f_equal; apply map_ext; intro; ring|].
    rewrite (S d 0 (fun _ => 0)), Rabs_R0. ring.
  - eapply Rle_trans; [apply (T d (fun i => p n * v n i) (fun i => sum n (fun j => p j * v j i)))|].
    rewrite (S d (p n) (fun i => v n i)), Rabs_pos_eq by apply P. lra.
Qed.
Lemma sum_positive n f : (0 < n)%nat -> (forall i, 0 < f i) -> 0 < sum n f.
Proof.
  intros N P. destruct n as [|n]; [lia|]. clear N. induction n as [|n IH]; cbn [sum] in *; [specialize (P O); lra|].
  specialize (P (S n)). lra.
Qed.
Ltac not_negative := repeat first [ assumption | apply Rmult_le_pos | apply Rlt_le, exp_pos
  | apply Rlt_le, Rinv_0_lt_compat, sum_positive; [assumption|intro; apply exp_pos] ].
Ltac by_norm := match goal with T : (forall d f g, ?norm _ <= _), S : (forall d t f, ?norm _ = _) |- 0 <= ?a + -1 * ?b =>
  enough (b <= a) by lra; apply (norm_of_sum norm T S); intro; not_negative end.
Ltac by_law := first [by_norm | learn_laws; lra].
Ltac on_list tactic :=
  intros ? I ? P; repeat (destruct I as [<-|I]; [cbn in P;
    repeat match goal with H : Forall2 _ _ _ |- _ => inversion H; clear H; subst end;
    repeat match goal with H : placed _ _ _ |- _ => destruct H as [? [-> ?]] end; cbn; tactic|]); destruct I.
Ltac is_given := on_list ltac:(idtac; first [given | by_law]).
Ltac is_log := intros ? I; repeat (destruct I as [<-|I]; [cbn; given|]); destruct I.
Ltac read_bound accepted size letter function env :=
  apply (bounds_ok _ _ _ _ _ _ _ _ _ _ _ _ _ accepted size letter function ltac:(holds_in_world) ltac:(is_least)
    ltac:(is_given) ltac:(is_log) env ltac:(is_placed) ltac:(is_defined) ltac:(is_defined)).
Ltac read_only forced equality size letter function env more :=
  apply (forces_ok _ _ _ _ _ _ _ _ _ _ _ _ _ _ forced size letter function ltac:(holds_in_world) ltac:(is_least)
    ltac:(is_given) ltac:(is_log) env ltac:(is_placed) ltac:(is_defined) ltac:(is_defined) equality more
    ltac:(is_placed)).

(* What holds of every entry holds of the largest, which is one of them. *)
Ltac is_some := first [ discriminate | match goal with H : (0 < ?n)%nat |- context [seq 0 ?n] =>
  destruct n; [lia|]; cbn; discriminate end ].
Ltac one_of I E := first
  [ apply in_app_or in I as [I|I]; one_of I E
  | apply in_map_iff in I as [? [E I]]; apply in_seq in I as [_ I]; rewrite Nat.add_0_l in I
  | destruct I as [E|I]; [|one_of I E] | destruct I ].
Ltac of_largest premise :=
  first [ premise | match goal with A : (forall l, l <> [] -> In (?max l) l) |- context [?max ?l] =>
    let I := fresh in let E := fresh in
    assert (I : In (max l) l) by (apply A; is_some); one_of I E; rewrite <- E; cbv beta; clear E; of_largest premise end ].

(* Two sides that differ where numbers have been put for arrays; exponentials are no more than positive numbers there. *)
Ltac powers_positive := repeat match goal with |- context [exp ?x] =>
  let P := fresh in pose proof (exp_pos x) as P; let e := fresh in set (e := exp x) in *; clearbody e end.
Ltac differs place :=
  repeat (split; [first [lia | intros; cbn; lra]|]); place; repeat (split; [lia|]); cbn; powers_positive;
  let E := fresh in intro E; first [lra | field_simplify_eq in E; [..|nra]; repeat split; apply Rgt_not_eq; lra].

(* Equals for equals, below sums and in arguments of functions too. *)
Ltac same := cbn beta; first
  [ reflexivity | given | lia
  | match goal with
    | |- sum ?n _ = sum ?n _ => apply sum_ext; intros; same
    | |- map _ (seq 0 ?n) = map _ (seq 0 ?n) => apply map_ext_in; let I := fresh in intros ? I; apply in_seq in I as [_ I];
        rewrite Nat.add_0_l in I; same
    end
  | progress f_equal; same ].

(* Statements write x - y for x + -1 * y, which it is equal to. *)
Notation "x - y" := (x + (-1) * y) : R_scope.
