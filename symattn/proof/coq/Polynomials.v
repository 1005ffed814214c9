(* Deciding whether an expression without quotients, exponentials and functions is 0 for all sizes, by computation.

   At one size it is a polynomial in its letters, whose normal form is a sorted list of terms. Two laws are used: some
   letters are each other's inverses, and some pairs have squares that add up to 1. The cut-off theorem says at which
   sizes to look ([vanishes]). *)
From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Symattn Require Import Meaning Cutoff.
Import ListNotations.
Open Scope R_scope.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.eqb : simpl never.
Local Arguments IZR : simpl never.
Local Arguments INR : simpl never.

(* 1. Terms in order: that of dictionaries, in which a word stands after those that it begins. *)
Definition atom : Type := nat * list place.
Definition mono := list atom.
Definition poly := list (mono * Z).
Fixpoint lex {A} (c : A -> A -> comparison) (x y : list A) : comparison :=
  match x, y with
  | [], [] => Eq | [], _ => Gt | _, [] => Lt
  | a :: x, b :: y => match c a b with Eq => lex c x y | r => r end
  end.
Definition by_place (p q : place) :=
  match p, q with
  | Some (s, i), Some (t, j) => match Nat.compare s t with Eq => Nat.compare i j | r => r end
  | None, None => Eq | None, _ => Lt | _, None => Gt
  end.
Definition by_atom (a b : atom) := match Nat.compare (fst a) (fst b) with Eq => lex by_place (snd a) (snd b) | r => r end.
Definition by_mono : mono -> mono -> comparison := lex by_atom.
Lemma lex_eq {A} (c : A -> A -> comparison) : (forall a b, c a b = Eq -> a = b) -> forall x y, lex c x y = Eq -> x = y.
Proof.
  intro H. induction x as [|a x]; destruct y as [|b y]; cbn; try easy.
  destruct (c a b) eqn:E; try easy. apply H in E. intro F. apply IHx in F. congruence.
Qed.
Lemma by_atom_eq a b : by_atom a b = Eq -> a = b.
Proof.
  destruct a as [k x], b as [l y]. unfold by_atom; cbn. destruct (Nat.compare k l) eqn:E; try easy.
  apply Nat.compare_eq in E. intro F. apply lex_eq in F; [congruence|]. intros [[s i]|] [[t j]|]; cbn; try easy.
  destruct (Nat.compare s t) eqn:G; try easy. apply Nat.compare_eq in G. intro H. apply Nat.compare_eq in H. congruence.
Qed.

Section Laws.
Variables inverses circles : list (nat * nat).
Definition lawful (J : letters) :=
  (forall a b, In (a, b) inverses -> forall at_, J a at_ * J b at_ = 1) /\
  (forall c s, In (c, s) circles -> forall at_, J c at_ * J c at_ + J s at_ * J s at_ = 1).
Lemma lawful_moved h J : lawful J -> lawful (moved h J).
Proof. intros [A B]. unfold moved. split; intros; auto. Qed.

Fixpoint inverse_of (l : list (nat * nat)) (k : nat) : option nat :=
  match l with [] => None | (a, b) :: l => if (a =? k)%nat then Some b else if (b =? k)%nat then Some a else inverse_of l k end.
Fixpoint cosine_of (l : list (nat * nat)) (k : nat) : option nat :=
  match l with [] => None | (c, s) :: l => if (s =? k)%nat then Some c else cosine_of l k end.
Lemma cosine_in l k c : cosine_of l k = Some c -> In (c, k) l.
Proof.
  induction l as [|[a b] l]; cbn; [easy|]. destruct (Nat.eqb_spec b k); [intros [= <-]; subst; now left|]. auto.
Qed.

(* 2. Products of letters. *)
Fixpoint insert (a : atom) (m : mono) : mono :=
  match m with [] => [a] | b :: m' => match by_atom a b with Gt => b :: insert a m' | _ => a :: m end end.
Fixpoint take (a : atom) (m : mono) : option mono :=
  match m with
  | [] => None
  | b :: m => match by_atom a b with Eq => Some m | _ => option_map (cons b) (take a m) end
  end.
Definition put (a : atom) (m : mono) : mono :=
  match inverse_of inverses (fst a) with
  | Some j => match take (j, snd a) m with Some m' => m' | None => insert a m end
  | None => insert a m
  end.
Definition mmul (m m' : mono) : mono := fold_right put m' m.
(* A square of a sine: its cosine, and the other factors. *)
Fixpoint square (m : mono) : option (atom * mono) :=
  match m with
  | a :: ((b :: r) as m') =>
      match cosine_of circles (fst a), by_atom a b with
      | Some c, Eq => Some ((c, snd a), r)
      | _, _ => option_map (fun x => (fst x, a :: snd x)) (square m')
      end
  | _ => None
  end.

Section Values.
Variable J : letters.
Definition aval (a : atom) := J (fst a) (snd a).
Fixpoint mval (m : mono) : R := match m with [] => 1 | a :: m => aval a * mval m end.
Fixpoint pval (p : poly) : R := match p with [] => 0 | (m, c) :: p => IZR c * mval m + pval p end.
Hypothesis L : lawful J.

Lemma inverse_ok k j : inverse_of inverses k = Some j -> forall at_, J k at_ * J j at_ = 1.
Proof.
  intros H at_. assert (I : In (k, j) inverses \/ In (j, k) inverses).
  { clear L. induction inverses as [|[a b] l]; cbn in *; [easy|]. destruct (Nat.eqb_spec a k); [injection H; subst; auto|].
    destruct (Nat.eqb_spec b k); [injection H; subst; auto|]. destruct (IHl H); auto. }
  destruct L as [A _]. destruct I as [I|I]; apply (A _ _ I at_) || (rewrite Rmult_comm; apply (A _ _ I at_)).
Qed.
Lemma insert_ok a m : mval (insert a m) = aval a * mval m.
Proof. induction m; cbn; [easy|]. destruct by_atom; cbn; try easy. rewrite IHm; ring. Qed.
Lemma take_ok a m : forall m', take a m = Some m' -> mval m = aval a * mval m'.
Proof.
  induction m; cbn; intros m'; [easy|]. destruct (by_atom a a0) eqn:E; [apply by_atom_eq in E; intros [= <-]; now subst| |];
    (destruct take; cbn; [|easy]; intros [= <-]; cbn; rewrite (IHm m0) by easy; ring).
Qed.
Lemma put_ok a m : mval (put a m) = aval a * mval m.
Proof.
  unfold put. destruct inverse_of eqn:E; [|apply insert_ok]. destruct take eqn:T; [|apply insert_ok].
  apply take_ok in T. rewrite T. unfold aval; cbn. rewrite <- Rmult_assoc, (inverse_ok _ _ E). ring.
Qed.
Lemma mmul_ok m m' : mval (mmul m m') = mval m * mval m'.
Proof. unfold mmul. induction m; cbn; [ring|]. rewrite put_ok, IHm; ring. Qed.
Lemma square_ok m : forall c r, square m = Some (c, r) -> mval m = (1 - aval c * aval c) * mval r.
Proof.
  induction m as [|a [|b m] IH]; [easy|easy|]. intros c r. cbn [square].
  assert (go : option_map (fun x : atom * mono => (fst x, a :: snd x)) (square (b :: m)) = Some (c, r) ->
    mval (a :: b :: m) = (1 - aval c * aval c) * mval r).
  { destruct (square (b :: m)) as [[c' r']|]; [|easy]. intros [= -> <-]. cbn [mval snd] in *. rewrite (IH c r') by easy. ring. }
  destruct (cosine_of circles (fst a)) eqn:C; [|exact go]. destruct (by_atom a b) eqn:E; [|exact go|exact go].
  intros [= <- <-]. apply by_atom_eq in E; subst. apply cosine_in in C. destruct L as [_ B].
  specialize (B _ _ C (snd b)). cbn. unfold aval; cbn.
  transitivity (J (fst b) (snd b) * J (fst b) (snd b) * mval m); [ring|]. f_equal. lra.
Qed.
End Values.

(* 3. Sums of terms: two sorted ones are merged; many are merged in pairs. *)
Fixpoint padd (p : poly) : poly -> poly :=
  match p with
  | [] => fun q => q
  | (m, c) :: p' => fix go q :=
      match q with
      | [] => (m, c) :: p'
      | (m', c') :: q' =>
          match by_mono m m' with
          | Lt => (m, c) :: padd p' ((m', c') :: q')
          | Gt => (m', c') :: go q'
          | Eq => if Z.eqb (c + c') 0 then padd p' q' else (m, (c + c')%Z) :: padd p' q'
          end
      end
  end.
Fixpoint in_pairs (l : list poly) : list poly := match l with p :: q :: l => padd p q :: in_pairs l | l => l end.
Fixpoint gather (rounds : nat) (l : list poly) : poly :=
  match rounds, l with
  | _, [] => [] | _, [p] => p
  | O, l => fold_right padd [] l
  | S rounds, l => gather rounds (in_pairs l)
  end.
Definition together (l : list poly) := gather 20 l.
Fixpoint circled (fuel : nat) (m : mono) (c : Z) : poly :=
  match fuel, square m with
  | S fuel, Some (x, r) => padd (circled fuel r c) (circled fuel (put x (put x r)) (- c))
  | _, _ => [(m, c)]
  end.
Definition term (m : mono) (c : Z) : poly := match circles with [] => [(m, c)] | _ => circled (length m) m c end.
Definition pmul (p q : poly) : poly :=
  together (flat_map (fun t => map (fun u => term (mmul (fst t) (fst u)) (snd t * snd u)) q) p).
Definition pnum (z : Z) : poly := if Z.eqb z 0 then [] else [([], z)].
Fixpoint topoly (S : nat -> list nat) (env : list place) (e : expr) : poly :=
  match e with
  | Num z => pnum z
  | Size s => pnum (Z.of_nat (length (S s)))
  | Letter k at_ => [([(k, map (look env) at_)], 1%Z)]
  | Is r i j => if related r (look env i) (look env j) then pnum 1 else []
  | Add a b => padd (topoly S env a) (topoly S env b)
  | Mul a b => match topoly S env a with [] => [] | p => pmul p (topoly S env b) end
  | Sum s b => together (map (fun i => topoly S (Some (s, i) :: env) b) (S s))
  | _ => []
  end.

Section PolynomialValues.
Variable J : letters.
Hypothesis L : lawful J.
Notation pval := (pval J).
Notation mval := (mval J).

Lemma padd_ok p : forall q, pval (padd p q) = pval p + pval q.
Proof.
  induction p as [|[m c] p IHp]; intro q; [cbn; ring|]. induction q as [|[m' c'] q IHq]; [cbn; ring|].
  cbn in *. destruct (by_mono m m') eqn:E.
  - apply lex_eq in E; [subst|exact by_atom_eq]. destruct (Z.eqb_spec (c + c') 0); cbn; rewrite IHp; [|rewrite plus_IZR; ring].
    replace (IZR c * mval m' + pval p + (IZR c' * mval m' + pval q)) with (IZR (c + c') * mval m' + (pval p + pval q))
      by (rewrite plus_IZR; ring). rewrite e; ring.
  - cbn. rewrite IHp. cbn. ring.
  - cbn. rewrite IHq. ring.
Qed.
Fixpoint pvals (l : list poly) : R := match l with [] => 0 | p :: l => pval p + pvals l end.
Lemma in_pairs_ok n : forall l, (length l <= n)%nat -> pvals (in_pairs l) = pvals l.
Proof.
  induction n; intros [|p [|q l]] H; cbn in *; try lia; try easy. rewrite padd_ok, IHn by lia. ring.
Qed.
Lemma gather_ok rounds : forall l, pval (gather rounds l) = pvals l.
Proof.
  induction rounds; intros [|p [|q l]]; cbn [gather]; try (cbn; ring).
  - generalize (p :: q :: l) as x. induction x; [easy|]. cbn. now rewrite padd_ok, IHx.
  - rewrite IHrounds. now apply in_pairs_ok with (length (p :: q :: l)).
Qed.
Lemma circled_ok fuel : forall m c, pval (circled fuel m c) = IZR c * mval m.
Proof.
  induction fuel; intros m c; cbn; [ring|]. destruct (square m) as [[x r]|] eqn:E; [|cbn; ring].
  rewrite padd_ok, !IHfuel, !put_ok, (square_ok J L _ _ _ E), opp_IZR by easy. ring.
Qed.
Lemma term_ok m c : pval (term m c) = IZR c * mval m.
Proof. unfold term. destruct circles; [cbn; ring | apply circled_ok]. Qed.
Lemma pmul_ok p q : pval (pmul p q) = pval p * pval q.
Proof.
  unfold pmul, together. rewrite gather_ok. induction p as [|[m c] p IHp]; cbn; [ring|].
  assert (A : forall x y, pvals (x ++ y) = pvals x + pvals y) by (induction x as [|a x H]; cbn; intro y; [ring|]; rewrite H; ring).
  rewrite A, IHp, Rmult_plus_distr_r. f_equal. clear -L. induction q as [|[m' c'] q IHq]; cbn; [ring|].
  fold (mmul m m'). rewrite IHq, term_ok, mmul_ok, mult_IZR by easy. ring.
Qed.
Lemma pnum_ok z : pval (pnum z) = IZR z.
Proof. unfold pnum. destruct (Z.eqb_spec z 0); cbn; [now subst | ring]. Qed.
Lemma topoly_ok S e : forall env, pval (topoly S env e) = peval S J env e.
Proof.
  induction e; intro env; cbn [topoly peval]; try easy.
  - apply pnum_ok.
  - rewrite pnum_ok. now rewrite INR_IZR_INZ.
  - cbn. unfold aval; cbn. ring.
  - destruct related; cbn; ring.
  - rewrite padd_ok. congruence.
  - rewrite <- IHe1, <- IHe2. destruct (topoly S env e1) as [|t p] eqn:E; [cbn; ring|]. now rewrite pmul_ok.
  - unfold together. rewrite gather_ok. induction (S s); cbn; [easy|]. now rewrite IHl, IHe.
Qed.
End PolynomialValues.

(* 4. At all sizes of a box, with weights for the free indices. *)
Fixpoint box (ds : list nat) : list (list nat) :=
  match ds with [] => [[]] | d :: ds => flat_map (fun k => map (cons k) (box ds)) (seq 0 (S d)) end.
Lemma box_in ds : forall ns, Forall2 le ns ds -> In ns (box ds).
Proof.
  induction ds; intros ns H; inversion H; subst; [now left|].
  apply in_flat_map. exists x. split; [apply in_seq; lia|]. apply in_map. auto.
Qed.
Definition zero_at (e : expr) (ns : list nat) : bool :=
  match topoly (fun t => upto (nth t ns O)) [] e with [] => true | _ => false end.
Definition early (first : nat) (l : list (nat * nat)) := forallb (fun p => (fst p <? first) && (snd p <? first))%nat l.
Definition vanishes K first (free : list nat) (e : expr) : bool :=
  early first inverses && early first circles && all_fresh first free e &&
  let w := closed first free e in
  sorts_below K w && forallb (zero_at w) (box (map (fun t => deg t w) (seq 0 K))).

Lemma vanishes_closed K w : sorts_below K w = true -> forallb (zero_at w) (box (map (fun t => deg t w) (seq 0 K))) = true ->
  forall S, (forall t, is_set (S t)) -> forall J, lawful J -> peval S J [] w = 0.
Proof.
  intros B V S D. refine (cutoff lawful lawful_moved K w B _ S D). intros n le J L. rewrite forallb_forall in V.
  assert (I : In (map n (seq 0 K)) (box (map (fun t => deg t w) (seq 0 K)))).
  { apply box_in. clear -le. induction (seq 0 K); cbn; constructor; auto. }
  apply V in I. unfold zero_at in I.
  rewrite (peval_below K _ (fun t => upto (nth t (map n (seq 0 K)) O)) J w); [|clear I; intros t lt|exact B].
  - rewrite <- topoly_ok by easy. now destruct topoly.
  - f_equal. rewrite (nth_indep _ O (n O)) by (now rewrite map_length, seq_length). rewrite map_nth, seq_nth; auto.
Qed.
Lemma lawful_weights first : early first inverses = true -> early first circles = true ->
  forall J J', (forall k a, (k < first)%nat -> J k a = J' k a) -> lawful J -> lawful J'.
Proof.
  unfold early. rewrite !forallb_forall. intros A B J J' E [H1 H2].
  split; intros a b I at_; [apply A in I as C; pose proof (H1 a b I at_) | apply B in I as C; pose proof (H2 a b I at_)];
    apply andb_prop in C as [C1 C2]; apply Nat.ltb_lt in C1, C2; cbn in *; rewrite <- !E; easy.
Qed.
Theorem vanishes_ok K first free e : vanishes K first free e = true -> forall size J, lawful J ->
  forall env, Forall2 (placed size) free env -> peval (fun t => upto (size t)) J env e = 0.
Proof.
  unfold vanishes. rewrite !andb_true_iff. intros [[[A B] F] [C V]] size J L env P.
  refine (closed_ok lawful first (lawful_weights first A B) _ free (fun t => upto_set (size t)) first e (le_n _) F _ env _ J L).
  - exact (vanishes_closed K _ C V _ (fun t => upto_set (size t))).
  - clear -P. induction P as [|s p free env [i [-> I]] P IH]; constructor; auto. exists i. split; [easy|]. now apply upto_in.
Qed.
End Laws.
