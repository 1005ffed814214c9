(* What is accepted is true: an equation, after steps that put equals for equals in it.

   A step says that, in a scope (the sorts of its free indices, the innermost first), one expression is another, such as
   two ways to write an exponent. Each is decided by [check], with the steps before it put to use, and what it puts in
   divides only by what is more than 0 by its form. Who writes the steps need not be believed. *)
From Coq Require Import Reals List Arith ZArith Lia Bool.
From Symattn Require Import Meaning Cutoff Clearing.
Import ListNotations.
Open Scope R_scope.

Record step := Step { scope : list nat; old : expr; new : expr }.
Definition list_eq := list_eq_dec Nat.eq_dec.
Fixpoint told (l : list step) (here : list nat) (e : expr) : option expr :=
  match l with
  | [] => None
  | x :: l => if expr_eq e (old x) then if list_eq here (scope x) then Some (new x) else told l here e else told l here e
  end.
Fixpoint rewritten (l : list step) (here : list nat) (e : expr) : expr :=
  match told l here e with
  | Some e => e
  | None =>
      match e with
      | Add a b => Add (rewritten l here a) (rewritten l here b)
      | Mul a b => Mul (rewritten l here a) (rewritten l here b)
      | Div a b => Div (rewritten l here a) (rewritten l here b)
      | Exp a => Exp (rewritten l here a)
      | Sum s b => Sum s (rewritten l (s :: here) b)
      | Fun f x => Fun f (all_rewritten l here x)
      | e => e
      end
  end
with all_rewritten (l : list step) (here : list nat) (x : args) : args :=
  match x with
  | End => End
  | One a x => One (rewritten l here a) (all_rewritten l here x)
  | Over s b x => Over s (rewritten l (s :: here) b) (all_rewritten l here x)
  end.

Section Accepting.
Variables (plus : list nat) (circles : list (nat * nat)).
(* Whether every divisor is more than 0 by its form. *)
Fixpoint sure (e : expr) : bool :=
  match e with
  | Add a b | Mul a b => sure a && sure b
  | Div a b => sure a && sure b && positive plus b
  | Exp a => sure a
  | Sum _ b => sure b
  | Fun _ l => all_sure l
  | _ => true
  end
with all_sure (l : args) : bool :=
  match l with End => true | One a l => sure a && all_sure l | Over _ b l => sure b && all_sure l end.

Definition right (x : step) := equal plus circles (scope x) (old x) (new x) /\ sure (new x) = true.
Lemma told_ok l here e e' : told l here e = Some e' -> Forall right l -> equal plus circles here e e' /\ sure e' = true.
Proof.
  intros T F. induction F as [|x l H F IH]; cbn in T; [easy|]. destruct expr_eq; [|auto]. destruct list_eq; [|auto].
  injection T as <-. now subst.
Qed.

Section World.
Variables (size : nat -> nat) (letter : letters) (function : nat -> list R -> R).
Hypothesis W : world plus circles size letter.
Notation eval := (eval size letter function).
Notation values := (values size letter function).
Notation defined := (defined plus size letter function).
Notation all_defined := (all_defined plus size letter function).

Lemma sure_defined : (forall e env, sure e = true -> defined env e) /\ (forall l env, all_sure l = true -> all_defined env l).
Proof.
  apply expressions; try easy.
  - intros a A b B env S. apply andb_prop in S as [S1 S2]. split; now (apply A || apply B).
  - intros a A b B env S. apply andb_prop in S as [S1 S2]. split; now (apply A || apply B).
  - intros a A b B env S. apply andb_prop in S as [S S3]. apply andb_prop in S as [S1 S2].
    split; [now apply A|]. split; [now apply B|]. change (positive plus b = true) in S3. now rewrite S3.
  - intros s b B env S. cbn. intros i I. exact (B _ S).
  - intros a A l B env S. apply andb_prop in S as [S1 S2]. split; now (apply A || apply B).
  - intros s b A l B env S. apply andb_prop in S as [S1 S2]. split; [intros i I; exact (A _ S1) | exact (B _ S2)].
Qed.
Lemma under s here env i : Forall2 (placed size) here env -> (i < size s)%nat ->
  Forall2 (placed size) (s :: here) (Some (s, i) :: env).
Proof. constructor; [now exists i | easy]. Qed.
Lemma rewritten_ok l : Forall right l ->
  (forall e here env, Forall2 (placed size) here env -> defined env e ->
     eval env e = eval env (rewritten l here e) /\ defined env (rewritten l here e)) /\
  (forall x here env, Forall2 (placed size) here env -> all_defined env x ->
     values env x = values env (all_rewritten l here x) /\ all_defined env (all_rewritten l here x)).
Proof.
  intro F.
  assert (T : forall e e' here env, told l here e = Some e' -> Forall2 (placed size) here env -> defined env e ->
     eval env e = eval env e' /\ defined env e').
  { intros e e' here env H P D. apply told_ok in H as [H S]; auto. pose proof (proj1 sure_defined _ env S). split; [|easy].
    now apply H. }
  apply expressions.
  all: try (intros; cbn [rewritten]; destruct told eqn:E; [now apply (T _ _ _ _ E)|easy]).
  - intros a IHa b IHb here env P D. cbn [rewritten]. destruct told eqn:E; [now apply (T _ _ _ _ E)|].
    destruct D as [D1 D2], (IHa here env P D1), (IHb here env P D2). cbn. split; congruence || easy.
  - intros a IHa b IHb here env P D. cbn [rewritten]. destruct told eqn:E; [now apply (T _ _ _ _ E)|].
    destruct D as [D1 D2], (IHa here env P D1), (IHb here env P D2). cbn. split; congruence || easy.
  - intros a IHa b IHb here env P D. cbn [rewritten]. destruct told eqn:E; [now apply (T _ _ _ _ E)|].
    destruct D as [D1 [D2 D3]], (IHa here env P D1) as [E1 F1], (IHb here env P D2) as [E2 F2]. cbn. split; [congruence|].
    repeat split; try easy. destruct (positive plus (rewritten l here b)); [easy|]. rewrite <- E2.
    destruct (positive plus b) eqn:Q; [|easy]. apply Rgt_not_eq. now apply (positive_ok plus circles size letter function W).
  - intros a IHa here env P D. cbn [rewritten]. destruct told eqn:E; [now apply (T _ _ _ _ E)|].
    destruct (IHa here env P D). cbn. split; congruence || easy.
  - intros s b IHb here env P D. cbn [rewritten]. destruct told eqn:E; [now apply (T _ _ _ _ E)|]. cbn.
    split; [|intros i I; now apply IHb; [apply under|apply D]]. apply sum_ext. intros i I.
    now apply IHb; [apply under|apply D].
  - intros f x IHx here env P D. cbn [rewritten]. destruct told eqn:E; [now apply (T _ _ _ _ E)|].
    destruct (IHx here env P D) as [V D']. split; [|exact D'].
    change (function f (values env x) = function f (values env (all_rewritten l here x))). now rewrite V.
  - easy.
  - intros a IHa x IHx here env P [D1 D2]. destruct (IHa here env P D1) as [E1 F1], (IHx here env P D2) as [E2 F2].
    split; [|easy]. change (eval env a :: values env x = eval env (rewritten l here a) :: values env (all_rewritten l here x)).
    congruence.
  - intros s b IHb x IHx here env P [D1 D2]. destruct (IHx here env P D2) as [E F'].
    assert (B : forall i, (i < size s)%nat -> eval (Some (s, i) :: env) b = eval (Some (s, i) :: env) (rewritten l (s :: here) b)
      /\ defined (Some (s, i) :: env) (rewritten l (s :: here) b)) by (intros; apply IHb; [now apply under | now apply D1]).
    split; [|split; [|easy]; intros; now apply B]. cbn [all_rewritten]. rewrite !values_over, E. f_equal.
    apply map_ext_in. intros i I. apply in_seq in I. now apply B.
Qed.
End World.

(* [check] in the four ways to treat divisors, the quickest first. *)
Definition decided K free l r : bool :=
  if expr_eq l r then true else if check 3 K circles free l r then true else
  if check 2 K circles free l r then true else if check 0 K circles free l r then true else check 1 K circles free l r.
Lemma decided_ok K free l r : decided K free l r = true -> equal plus circles free l r.
Proof.
  unfold decided. destruct expr_eq; [now subst|].
  destruct check eqn:C; [intros _; exact (check_ok _ _ plus _ _ _ _ C)|clear C].
  destruct (check 2) eqn:A; [intros _; exact (check_ok _ _ plus _ _ _ _ A)|].
  destruct (check 0) eqn:B; [intros _; exact (check_ok _ _ plus _ _ _ _ B)|]. apply check_ok.
Qed.
Lemma after_steps l free a b : Forall right l -> equal plus circles free (rewritten l free a) (rewritten l free b) ->
  equal plus circles free a b.
Proof.
  intros F H size letter function W env P D1 D2.
  destruct (proj1 (rewritten_ok size letter function W l F) a free env P D1) as [-> E1].
  destruct (proj1 (rewritten_ok size letter function W l F) b free env P D2) as [-> E2].
  now apply H.
Qed.
(* What a step puts in may hold what another one takes out: the steps are put to use several times. *)
Fixpoint often passes l free a := match passes with O => a | S n => often n l free (rewritten l free a) end.
Lemma after_often passes l free : Forall right l -> forall a b,
  equal plus circles free (often passes l free a) (often passes l free b) -> equal plus circles free a b.
Proof. intro F. induction passes; cbn; [easy|]. intros a b H. apply (after_steps l); auto. Qed.
Definition with_steps K passes l free a b : bool := decided K free (often passes l free a) (often passes l free b).
Fixpoint steps_done K passes (done todo : list step) : option (list step) :=
  match todo with
  | [] => Some done
  | x :: todo =>
      if sure (new x) then if with_steps K passes done (scope x) (old x) (new x) then steps_done K passes (x :: done) todo else None else None
  end.
Lemma steps_ok K passes todo : forall done l, steps_done K passes done todo = Some l -> Forall right done -> Forall right l.
Proof.
  induction todo as [|x todo IH]; cbn; intros done l; [now intros [= <-]|].
  destruct (sure (new x)) eqn:S; [|easy]. destruct with_steps eqn:E; [|easy]. intros H F. apply (IH _ _ H).
  constructor; [|easy]. split; [|easy]. apply (after_often passes done); [easy|]. now apply (decided_ok K).
Qed.

(* K is a bound for the sorts that occur. *)
Definition accepts K passes (steps : list step) free l r : bool :=
  match steps_done K passes [] steps with Some done => with_steps K passes done free l r | None => false end.
Theorem accepts_ok K passes steps free l r : accepts K passes steps free l r = true -> equal plus circles free l r.
Proof.
  unfold accepts. destruct steps_done as [done|] eqn:E; [|easy]. intro H.
  apply (after_often passes done); [now apply (steps_ok K passes steps [] done)|]. now apply (decided_ok K).
Qed.
End Accepting.
