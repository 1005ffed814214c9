(* Inequalities: the difference of both sides is, for all sizes, what is not negative by its form.

   Not negative are numbers, sizes, exponentials, relations, squares, letters that are declared so, sums, products and
   quotients of them, 1 less a relation, and e^u − u − 1. *)
From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Symattn Require Import Meaning Cutoff Clearing Accepting.
Import ListNotations.
Open Scope R_scope.

Section Bounding.
Variables (plus least : list nat) (circles : list (nat * nat)).
(* Expressions that are assumed not to be negative, each with the sorts of its indices in the order of [free_in]. *)
Variable given : list (list nat * expr).
Definition option_eq := list_eq_dec (fun a b : option nat => ltac:(decide equality; apply Nat.eq_dec) : {a = b} + {a <> b}).
Definition assumed (here : list nat) (e : expr) : bool :=
  existsb (fun p => if expr_eq (compact e) (snd p) then
    if option_eq (map Some (fst p)) (map (nth_error here) (free_in e)) then true else false else false) given.
Fixpoint at_least_0 (here : list nat) (e : expr) : bool :=
  if assumed here e then true else
  match e with
  | Num z => (0 <=? z)%Z
  | Size _ | Exp _ | Is _ _ _ => true
  | Letter k _ => existsb (Nat.eqb k) plus || existsb (Nat.eqb k) least
  | Add a b =>
      if at_least_0 here a && at_least_0 here b then true else
      match a, b with
      | Exp u, Mul (Num (-1)) (Add v (Num 1)) => if expr_eq u v then true else false
      | Mul (Num (-1)) (Is _ _ _), Num 1 => true
      | _, _ => false
      end
  | Mul a b => if expr_eq a b then true else at_least_0 here a && at_least_0 here b
  | Div a b => at_least_0 here a && positive plus b
  | Sum s b => at_least_0 (s :: here) b
  | _ => false
  end.

(* [left] is at most [right] in all worlds in which the letters [least] and what is [given] are not negative. *)
Definition at_most (free : list nat) (left right : expr) : Prop :=
  forall size letter function, world plus circles size letter ->
  (forall k, In k least -> forall at_, 0 <= letter k at_) ->
  (forall p, In p given -> forall env, Forall2 (placed size) (fst p) env -> 0 <= eval size letter function env (snd p)) ->
  forall env, Forall2 (placed size) free env ->
  defined plus size letter function env left -> defined plus size letter function env right ->
  eval size letter function env left <= eval size letter function env right.

Section World.
Variables (size : nat -> nat) (letter : letters) (function : nat -> list R -> R).
Hypothesis W : world plus circles size letter.
Hypothesis L : forall k, In k least -> forall at_, 0 <= letter k at_.
Hypothesis A : forall p, In p given -> forall env, Forall2 (placed size) (fst p) env ->
  0 <= eval size letter function env (snd p).
Notation eval := (eval size letter function).

Lemma placed_look here env x s : Forall2 (placed size) here env -> nth_error here x = Some s -> placed size s (look env x).
Proof.
  intro P. revert x. induction P as [|? ? ? ? ? ? IH]; intros [|n]; cbn; try easy; [intros [= <-]; easy|]. apply IH.
Qed.
Lemma assumed_ok here env e : assumed here e = true -> Forall2 (placed size) here env -> 0 <= eval env e.
Proof.
  intros H P. apply existsb_exists in H as [[sorts g] [I H]]. cbn [fst snd] in H.
  destruct expr_eq as [E|]; [|easy]. destruct option_eq as [F|]; [|easy].
  rewrite compact_ok, E. apply (A _ I). cbn [fst]. clear -P F. revert sorts F.
  induction (free_in e) as [|x l IH]; intros [|s sorts] F; try easy; cbn in *; constructor.
  - apply (placed_look here env x s P). congruence.
  - apply IH. congruence.
Qed.
Lemma tangent u : u + 1 <= exp u.
Proof. destruct (Req_dec u 0) as [->|H]; [rewrite exp_0; lra|]. apply exp_ineq1 in H. lra. Qed.
Lemma at_least_0_ok e : forall here env, at_least_0 here e = true -> Forall2 (placed size) here env -> 0 <= eval env e.
Proof.
  induction e; intros here env H P; cbn [at_least_0] in H; (destruct assumed eqn:Q; [now apply (assumed_ok here env)|clear Q]);
    try easy.
  - apply Z.leb_le, IZR_le in H. exact H.
  - apply pos_INR.
  - cbn. apply orb_prop in H as [H|H]; apply existsb_exists in H as [x [I E]]; apply Nat.eqb_eq in E; subst; [|now apply L].
    destruct W as [_ [B _]]. left. now apply B.
  - cbn. destruct related; cbn; lra.
  - destruct (at_least_0 here e1 && at_least_0 here e2) eqn:B.
    { apply andb_prop in B as [B1 B2]. specialize (IHe1 here env B1 P). specialize (IHe2 here env B2 P). cbn. lra. }
    clear B. destruct e1; try easy.
    + destruct e1_1; try easy. destruct z as [| |[]]; try easy. destruct e1_2; try easy. destruct e2; try easy.
      destruct z as [|[]|]; try easy. cbn. destruct related; cbn; lra.
    + destruct e2; try easy. destruct e2_1; try easy. destruct z as [| |[]]; try easy. destruct e2_2; try easy.
      destruct e2_2_2; try easy. destruct z as [|[]|]; try easy. destruct expr_eq; [subst|easy]. cbn.
      pose proof (tangent (eval env e2_2_1)). lra.
  - destruct expr_eq; [subst; cbn; apply Rle_0_sqr|]. apply andb_prop in H as [H1 H2]. cbn. apply Rmult_le_pos; eauto.
  - apply andb_prop in H as [H1 H2]. cbn. apply Rmult_le_pos; [eauto|]. left. apply Rinv_0_lt_compat.
    now apply (positive_ok plus circles size letter function W).
  - cbn. left. apply exp_pos.
  - cbn. assert (S : forall i, (i < size s)%nat -> 0 <= eval (Some (s, i) :: env) e).
    { intros i I. apply (IHe (s :: here)); [easy|]. constructor; [now exists i | easy]. }
    revert S. induction (size s) as [|n IH]; cbn [sum]; intro S; [lra|].
    assert (0 <= sum n (fun i => eval (Some (s, i) :: env) e)) by (apply IH; intros; apply S; lia).
    specialize (S n ltac:(lia)). lra.
Qed.
End World.

(* [why] is the difference of the sides, and not negative by its form. *)
Definition bounds K passes steps free l r why : bool :=
  if sure plus why then if at_least_0 free why then accepts plus circles K passes steps free (Add r (Mul (Num (-1)) l)) why
  else false else false.
Theorem bounds_ok K passes steps free l r why : bounds K passes steps free l r why = true -> at_most free l r.
Proof.
  unfold bounds. destruct (sure plus why) eqn:S; [|easy]. destruct (at_least_0 free why) eqn:A; [|easy].
  intros H size letter function W L G env P D1 D2. apply accepts_ok in H.
  specialize (H size letter function W env P (conj D2 (conj I D1))).
  assert (D : defined plus size letter function env why) by now apply sure_defined.
  specialize (H D). pose proof (at_least_0_ok size letter function W L G why free env A P). cbn in H. lra.
Qed.

(* An expression that is more than 0 by its form is so in all worlds. *)
Definition above_0 (e : expr) : Prop := forall size letter function, world plus circles size letter ->
  forall env, 0 < eval size letter function env e.
Theorem above_0_ok e : positive plus e = true -> above_0 e.
Proof. intros H size letter function W env. now apply (positive_ok plus circles size letter function W). Qed.
End Bounding.
