(* From quotients and exponentials to polynomials: both sides are cleared, and what is left is decided by [vanishes].

   Letters stand for what is no polynomial: for a value of a function, for e to the power of one term of an exponent, and
   for its inverse, since e^(2x - y) = e^x e^x (e^y)⁻¹. So an exponential need not be known to be more than that. A side
   becomes a numerator over divisors that are not 0 ([clear]); a divisor below a Σ may also stay there as a letter 1/b. *)
From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Symattn Require Import Meaning Cutoff Polynomials.
Import ListNotations.
Open Scope R_scope.
Local Arguments Nat.ltb : simpl never.
Local Arguments Nat.eqb : simpl never.
Local Arguments Nat.mul : simpl never.
Local Arguments IZR : simpl never.
Local Arguments INR : simpl never.

Fixpoint expr_eq (a b : expr) {struct a} : {a = b} + {a <> b}
with args_eq (a b : args) {struct a} : {a = b} + {a <> b}.
Proof.
  - decide equality; try apply Z.eq_dec; try apply (list_eq_dec Nat.eq_dec); try apply Nat.eq_dec; decide equality.
  - decide equality; apply Nat.eq_dec.
Defined.
Scheme expr_both := Induction for expr Sort Prop with args_both := Induction for args Sort Prop.
Combined Scheme expressions from expr_both, args_both.

(* 1. Free indices and renaming. *)
Definition outside (l : list nat) := flat_map (fun x => match x with O => [] | S x => [x] end) l.
Fixpoint indices (e : expr) : list nat :=
  match e with
  | Letter _ at_ => at_
  | Is _ i j => [i; j]
  | Add a b | Mul a b | Div a b => indices a ++ indices b
  | Sum _ b => outside (indices b)
  | Exp a => indices a
  | Fun _ l => all_indices l
  | _ => []
  end
with all_indices (l : args) : list nat :=
  match l with
  | End => []
  | One a l => indices a ++ all_indices l
  | Over _ b l => outside (indices b) ++ all_indices l
  end.
Definition up (h : nat -> nat) x := match x with O => O | S x => S (h x) end.
Fixpoint rename h (e : expr) : expr :=
  match e with
  | Letter k at_ => Letter k (map h at_)
  | Is r i j => Is r (h i) (h j)
  | Add a b => Add (rename h a) (rename h b)
  | Mul a b => Mul (rename h a) (rename h b)
  | Div a b => Div (rename h a) (rename h b)
  | Sum s b => Sum s (rename (up h) b)
  | Exp a => Exp (rename h a)
  | Fun f l => Fun f (rename_all h l)
  | e => e
  end
with rename_all h (l : args) : args :=
  match l with
  | End => End
  | One a l => One (rename h a) (rename_all h l)
  | Over s b l => Over s (rename (up h) b) (rename_all h l)
  end.
Lemma outside_in x l : In x (outside l) <-> In (S x) l.
Proof.
  unfold outside. rewrite in_flat_map. split.
  - intros [[|y] [H1 H2]]; cbn in H2; [easy|]. destruct H2 as [<-|[]]; auto.
  - intro H. exists (S x); cbn; auto.
Qed.
Lemma look_up h env env' l p : (forall x, In x (outside l) -> look env x = look env' (h x)) ->
  forall x, In x l -> look (p :: env) x = look (p :: env') (up h x).
Proof. intros H [|x] Ix; cbn; [easy|]. unfold look in *; cbn. apply H. now apply outside_in. Qed.
Lemma sum_ext n f g : (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof. intro H. rewrite !sum_over. apply over_ext. intros i I. apply H. now apply upto_in. Qed.
Lemma sum_scaled n f c : sum n (fun i => f i * c) = sum n f * c.
Proof. induction n; cbn; [ring|]. rewrite IHn; ring. Qed.
Lemma sum_plus n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n; cbn; [ring|]. rewrite IHn; ring. Qed.
Lemma sum_zero n : sum n (fun _ => 0) = 0.
Proof. induction n; cbn; [easy|]. rewrite IHn; ring. Qed.
Lemma values_over size J G env s b l :
  values size J G env (Over s b l) = map (fun i => eval size J G (Some (s, i) :: env) b) (seq 0 (size s)) ++ values size J G env l.
Proof. destruct l; [symmetry; apply app_nil_r | easy | easy]. Qed.
Lemma rename_ok size J G : (forall e h env env', (forall x, In x (indices e) -> look env x = look env' (h x)) ->
    eval size J G env e = eval size J G env' (rename h e)) /\
  (forall l h env env', (forall x, In x (all_indices l) -> look env x = look env' (h x)) ->
    values size J G env l = values size J G env' (rename_all h l)).
Proof.
  apply expressions.
  13: { intros s b H l H0 h env env' H1. cbn [all_indices rename_all] in *. rewrite !values_over. f_equal.
    - apply map_ext; intro; apply H, look_up. intros; apply H1, in_or_app; auto.
    - apply H0. intros; apply H1, in_or_app; auto. }
  all: cbn; intros; auto;
    try (f_equal; try (apply H || apply H0); try (apply map_ext; intro; apply H; apply look_up);
      intros; (apply H0 || apply H1 || apply H); try apply in_or_app; auto; fail).
  - f_equal. rewrite map_map. apply map_ext_in. auto.
  - rewrite !H; cbn; auto.
  - apply sum_ext; intros; apply H. now apply look_up.
Qed.

(* An expression up to the names of its free indices, which are numbered as they occur. *)
Fixpoint position (x : nat) (l : list nat) : nat :=
  match l with [] => O | y :: l => if (x =? y)%nat then O else S (position x l) end.
Definition free_in e := nodup Nat.eq_dec (indices e).
Definition compact e := rename (fun x => position x (free_in e)) e.
Lemma look_position env x l : In x l -> look (map (look env) l) (position x l) = look env x.
Proof.
  unfold look at 1. induction l; cbn; [easy|]. intro H. destruct (Nat.eqb_spec x a); [now subst|].
  apply IHl. destruct H; [congruence | easy].
Qed.
Lemma compact_ok size J G e env : eval size J G env e = eval size J G (map (look env) (free_in e)) (compact e).
Proof. apply rename_ok. intros x H. symmetry. apply look_position. now apply nodup_In. Qed.

(* 2. Terms of an exponent: a whole number times the rest. *)
Fixpoint terms (e : expr) : list expr :=
  match e with
  | Add a b => terms a ++ terms b
  | Mul a b => flat_map (fun x => map (Mul x) (terms b)) (terms a)
  | Sum s b => map (Sum s) (terms b)
  | e => [e]
  end.
Definition is_one (e : expr) : bool := match e with Num 1 => true | _ => false end.
Definition times (a b : expr) := if is_one a then b else if is_one b then a else Mul a b.
Fixpoint coefficient (e : expr) : Z * expr :=
  match e with
  | Num z => (z, Num 1)
  | Div (Num z) b => (z, Div (Num 1) b)
  | Mul a b => let '(c, x) := coefficient a in let '(d, y) := coefficient b in ((c * d)%Z, times x y)
  | Sum s b => let '(c, x) := coefficient b in (c, Sum s x)
  | e => (1%Z, e)
  end.
Inductive name := Base (k : nat) | Value (e : expr) | Power (e : expr).
Definition name_eq (a b : name) : {a = b} + {a <> b}. decide equality; auto using Nat.eq_dec, expr_eq. Defined.
Fixpoint find (x : name) (l : list name) : option nat :=
  match l with [] => None | y :: l => if name_eq x y then Some O else option_map S (find x l) end.
Lemma find_ok x l : forall k, find x l = Some k -> nth_error l k = Some x.
Proof.
  induction l; cbn; [easy|]. intro k. destruct name_eq; [intros [= <-]; cbn; congruence|].
  destruct (find x l); [|easy]. intros [= <-]; cbn; auto.
Qed.

Section Clearing.
Variables (plus : list nat) (circles : list (nat * nat)) (size : nat -> nat) (letter : letters) (function : nat -> list R -> R).
Hypothesis W : world plus circles size letter.
Variable tbl : list name.
Notation eval := (eval size letter function).
Notation defined := (defined plus size letter function).

Definition sumlist env l := fold_right (fun x r => eval env x + r) 0 l.
Lemma sumlist_app env l m : sumlist env (l ++ m) = sumlist env l + sumlist env m.
Proof. unfold sumlist. induction l; cbn; [ring|]. rewrite IHl; ring. Qed.
Lemma sumlist_mul env a m : sumlist env (map (Mul a) m) = eval env a * sumlist env m.
Proof. unfold sumlist. induction m; cbn; [ring|]. rewrite IHm; ring. Qed.
Lemma sumlist_cons env x l : sumlist env (x :: l) = eval env x + sumlist env l.
Proof. easy. Qed.
Lemma terms_ok e : forall env, sumlist env (terms e) = eval env e.
Proof.
  induction e; intro env; cbn [terms]; try (rewrite sumlist_cons; cbn; ring).
  - rewrite sumlist_app, IHe1, IHe2; easy.
  - cbn [Meaning.eval]. rewrite <- IHe1, <- IHe2. clear IHe1 IHe2.
    induction (terms e1) as [|x l IHl]; cbn [flat_map]; [cbn; ring|].
    rewrite sumlist_app, IHl, sumlist_mul, sumlist_cons. ring.
  - cbn [Meaning.eval]. rewrite (sum_ext _ _ (fun i => sumlist (Some (s, i) :: env) (terms e))) by (intros; now rewrite IHe).
    clear IHe. induction (terms e) as [|x l IHl]; cbn [map]; [symmetry; apply sum_zero|].
    rewrite sumlist_cons, IHl. cbn [Meaning.eval]. now rewrite <- sum_plus.
Qed.
Lemma times_ok env a b : eval env (times a b) = eval env a * eval env b.
Proof.
  assert (H : forall e, is_one e = true -> eval env e = 1) by (intros []; try easy; destruct z; try easy; now destruct p).
  unfold times. destruct (is_one a) eqn:A; [rewrite (H a A); ring|]. destruct (is_one b) eqn:B; [rewrite (H b B); ring|]. easy.
Qed.
Lemma coefficient_ok e : forall env, eval env e = IZR (fst (coefficient e)) * eval env (snd (coefficient e)).
Proof.
  induction e; intro env; cbn [coefficient]; try (cbn; ring).
  - rewrite (surjective_pairing (coefficient e1)), (surjective_pairing (coefficient e2)). cbn [fst snd Meaning.eval].
    rewrite times_ok, mult_IZR, IHe1, IHe2. ring.
  - destruct e1; cbn; unfold Rdiv; ring.
  - rewrite (surjective_pairing (coefficient e)). cbn [fst snd Meaning.eval]. rewrite Rmult_comm, <- sum_scaled.
    apply sum_ext; intros. rewrite IHe. ring.
Qed.

(* 3. What the letters of polynomials stand for: number 2k for the name number k, and 2k + 1 for its inverse. *)
Definition base (x : option name) (at_ : list place) : R :=
  match x with
  | Some (Base k) => letter k at_
  | Some (Value e) => eval at_ e
  | Some (Power e) => exp (eval at_ e)
  | None => 0
  end.
Definition meaning (m : nat) (at_ : list place) : R :=
  let v := base (nth_error tbl (Nat.div2 m)) at_ in if Nat.even m then v else / v.
Definition code (x : name) at_ := option_map (fun k => Letter (2 * k) at_) (find x tbl).
Definition inverse_code (x : name) at_ := option_map (fun k => Letter (S (2 * k)) at_) (find x tbl).
Notation val := (Meaning.eval size meaning function).

Lemma even_double k : Nat.even (2 * k) = true.
Proof. now rewrite Nat.even_mul. Qed.
Lemma even_next k : Nat.even (S (2 * k)) = false.
Proof. now rewrite Nat.even_succ, Nat.odd_mul. Qed.
Lemma code_ok x at_ p env : code x at_ = Some p -> val env p = base (Some x) (map (look env) at_).
Proof.
  unfold code. destruct find eqn:F; cbn [option_map]; [|easy]. intros [= <-]. cbn [Meaning.eval].
  unfold meaning. rewrite Nat.div2_double, even_double. now rewrite (find_ok _ _ _ F).
Qed.
Lemma inverse_code_ok x at_ p env : inverse_code x at_ = Some p -> val env p = / base (Some x) (map (look env) at_).
Proof.
  unfold inverse_code. destruct find eqn:F; cbn [option_map]; [|easy]. intros [= <-]. cbn [Meaning.eval].
  unfold meaning. rewrite Nat.div2_succ_double, even_next. now rewrite (find_ok _ _ _ F).
Qed.

Fixpoint inverse_pairs k (l : list name) : list (nat * nat) :=
  match l with
  | [] => []
  | Power _ :: l => (2 * k, S (2 * k))%nat :: inverse_pairs (S k) l
  | _ :: l => inverse_pairs (S k) l
  end.
Definition circle_pairs : list (nat * nat) :=
  flat_map (fun p => match find (Base (fst p)) tbl, find (Base (snd p)) tbl with
    | Some c, Some s => [(2 * c, 2 * s)%nat] | _, _ => [] end) circles.
Lemma meaning_lawful : lawful (inverse_pairs 0 tbl) circle_pairs meaning.
Proof.
  split.
  - intros a b I at_. assert (E : exists k e, a = (2 * k)%nat /\ b = S (2 * k) /\ nth_error tbl k = Some (Power e)).
    { assert (G : forall l k, (forall i, nth_error l i = nth_error tbl (k + i)) -> In (a, b) (inverse_pairs k l) ->
        exists k e, a = (2 * k)%nat /\ b = S (2 * k) /\ nth_error tbl k = Some (Power e)).
      { induction l as [|x l IH]; cbn; intros k H J; [easy|].
        assert (H' : forall i, nth_error l i = nth_error tbl (S k + i))
          by (intro i; specialize (H (S i)); rewrite Nat.add_succ_r in H; exact H).
        destruct x; try (now apply (IH (S k))). destruct J as [[= <- <-]|J]; [|now apply (IH (S k))].
        exists k, e. repeat split. specialize (H 0%nat). cbn in H. rewrite Nat.add_0_r in H. now symmetry. }
      now apply (G tbl 0%nat). }
    destruct E as (k & e & -> & -> & E). unfold meaning.
    rewrite Nat.div2_double, Nat.div2_succ_double, even_double, even_next, E. cbn.
    apply Rinv_r. apply Rgt_not_eq, exp_pos.
  - intros a b I at_. unfold circle_pairs in I. apply in_flat_map in I as [[c s] [I J]]. cbn in J.
    destruct (find (Base c) tbl) eqn:C; [|easy]. destruct (find (Base s) tbl) eqn:D; [|easy].
    destruct J as [[= <- <-]|[]]. unfold meaning. rewrite !Nat.div2_double, !even_double.
    rewrite (find_ok _ _ _ C), (find_ok _ _ _ D). cbn. now apply W.
Qed.

(* 4. Exponentials. *)
Fixpoint prods env (l : list expr) : R := match l with [] => 1 | x :: l => val env x * prods env l end.
Lemma prods_app env l m : prods env (l ++ m) = prods env l * prods env m.
Proof. induction l; cbn; [ring|]. rewrite IHl; ring. Qed.
Definition power (x : expr) : option (list expr) :=
  let '(c, y) := coefficient x in
  option_map (fun p => repeat p (Z.abs_nat c))
    ((if (0 <=? c)%Z then code else inverse_code) (Power (compact y)) (free_in y)).
Fixpoint powers (l : list expr) : option (list expr) :=
  match l with
  | [] => Some []
  | x :: l => match power x, powers l with Some p, Some q => Some (p ++ q) | _, _ => None end
  end.
Lemma repeat_ok env p y k : val env p = exp y -> prods env (repeat p k) = exp (INR k * y).
Proof.
  intro H. induction k; [cbn; now rewrite Rmult_0_l, exp_0|].
  cbn [repeat prods]. rewrite S_INR, Rmult_plus_distr_r, Rmult_1_l, exp_plus, IHk, H. ring.
Qed.
Lemma power_ok env x l : power x = Some l -> prods env l = exp (eval env x).
Proof.
  unfold power. rewrite (coefficient_ok x env). destruct (coefficient x) as [c y]. cbn [fst snd].
  destruct (Z.leb_spec 0 c).
  - destruct code eqn:E; cbn [option_map]; [|easy]. intros [= <-]. apply (code_ok _ _ _ env) in E. cbn [base] in E.
    rewrite <- compact_ok in E. rewrite (repeat_ok env _ _ _ E). now rewrite INR_IZR_INZ, Zabs2Nat.id_abs, Z.abs_eq.
  - destruct inverse_code eqn:E; cbn [option_map]; [|easy]. intros [= <-]. apply (inverse_code_ok _ _ _ env) in E.
    cbn [base] in E. rewrite <- compact_ok, <- exp_Ropp in E. rewrite (repeat_ok env _ _ _ E).
    rewrite INR_IZR_INZ, Zabs2Nat.id_abs, Z.abs_neq, opp_IZR by lia. f_equal. ring.
Qed.
Lemma powers_ok env l : forall p, powers l = Some p -> prods env p = exp (sumlist env l).
Proof.
  induction l as [|x l IHl]; cbn [powers]; intro p; [intros [= <-]; cbn; now rewrite exp_0|].
  destruct (power x) eqn:P; [|easy]. destruct (powers l); [|easy]. intros [= <-].
  rewrite prods_app, sumlist_cons, exp_plus, (power_ok env _ _ P), (IHl l1); easy.
Qed.

(* 5. Numerators and divisors. *)
Definition quotient : Type := expr * list expr.
Definition stands env (x : R) (q : quotient) := x * prods env (snd q) = val env (fst q) /\ prods env (snd q) <> 0.
Fixpoint product l := match l with [] => Num 1 | [x] => x | x :: l => Mul x (product l) end.
Lemma product_ok env l : val env (product l) = prods env l.
Proof. induction l as [|x [|y l] IH]; cbn in *; [easy | ring |]. now rewrite IH. Qed.
Fixpoint factors e := match e with Mul a b => factors a ++ factors b | Num 1 => [] | e => [e] end.
Lemma factors_ok env e : prods env (factors e) = val env e.
Proof.
  induction e; cbn [factors]; try (cbn; ring).
  - destruct z; try destruct p; cbn; ring.
  - rewrite prods_app, IHe1, IHe2; easy.
Qed.
Fixpoint without x (l : list expr) :=
  match l with [] => None | y :: l => if expr_eq x y then Some l else option_map (cons y) (without x l) end.
Lemma without_ok env x l : forall m, without x l = Some m -> prods env l = val env x * prods env m.
Proof.
  induction l; cbn; intro m; [easy|]. destruct expr_eq; [intros [= <-]; now subst|].
  destruct without; [|easy]. intros [= <-]; cbn. rewrite (IHl l0 eq_refl). ring.
Qed.
(* What two lists of factors share, and what each has besides. *)
Fixpoint common (l m : list expr) : list expr * list expr * list expr :=
  match l with
  | [] => ([], [], m)
  | x :: l =>
      match without x m with
      | Some m => let '(c, l, m) := common l m in (x :: c, l, m)
      | None => let '(c, l, m) := common l m in (c, x :: l, m)
      end
  end.
Lemma common_ok env l : forall m c l' m', common l m = (c, l', m') ->
  prods env l = prods env c * prods env l' /\ prods env m = prods env c * prods env m'.
Proof.
  induction l; cbn; intros m c l' m'; [intros [= <- <- <-]; cbn; split; ring|].
  destruct without eqn:E; [apply (without_ok env) in E|];
    (destruct common as [[c' r] r'] eqn:C; intros [= <- <- <-]; apply IHl in C as [C1 C2]; cbn);
    rewrite ?E, C1, C2; split; ring.
Qed.
Lemma prods_not_0 (x y : R) : x <> 0 -> y <> 0 -> x * y <> 0.
Proof. apply Rmult_integral_contrapositive_currified. Qed.

Definition cancel (q : quotient) : quotient :=
  let '(c, top, bottom) := common (factors (fst q)) (snd q) in (product top, bottom).
Lemma cancel_ok env x q : stands env x q -> stands env x (cancel q).
Proof.
  destruct q as [n d]. unfold cancel; cbn [fst snd]. destruct common as [[c top] bottom] eqn:C.
  apply (common_ok env) in C as [C1 C2]. rewrite factors_ok in C1. unfold stands; cbn. rewrite product_ok, C1, C2. intros [H N].
  split; [|intro Z; apply N; rewrite Z; ring]. apply Rmult_eq_reg_l with (prods env c); [rewrite <- H; ring|].
  intro Z; apply N; rewrite Z; ring.
Qed.
Definition qadd (p q : quotient) : quotient :=
  let '(c, l, m) := common (snd p) (snd q) in (Add (Mul (fst p) (product m)) (Mul (fst q) (product l)), c ++ l ++ m).
Lemma qadd_ok env x y p q : stands env x p -> stands env y q -> stands env (x + y) (qadd p q).
Proof.
  destruct p as [n d], q as [m e]. unfold qadd, stands; cbn [fst snd]. destruct common as [[c l] r] eqn:C.
  apply (common_ok env) in C as [C1 C2]. intros [E1 N1] [E2 N2]. cbn [fst snd Meaning.eval].
  rewrite !product_ok, !prods_app, <- E1, <- E2. rewrite C1 in *. rewrite C2 in *. split; [ring|].
  intro Z. destruct (Rmult_integral _ _ Z) as [Z1|Z1]; [apply N1; rewrite Z1; ring|].
  destruct (Rmult_integral _ _ Z1) as [Z2|Z2]; [apply N1 | apply N2]; rewrite Z2; ring.
Qed.
Definition qmul (p q : quotient) : quotient := (Mul (fst p) (fst q), snd p ++ snd q).
Lemma qmul_ok env x y p q : stands env x p -> stands env y q -> stands env (x * y) (qmul p q).
Proof.
  unfold stands, qmul. intros [E1 N1] [E2 N2]. cbn [fst snd Meaning.eval]. rewrite prods_app, <- E1, <- E2.
  split; [ring | now apply prods_not_0].
Qed.
Definition qdiv (p q : quotient) : quotient := cancel (Mul (fst p) (product (snd q)), snd p ++ factors (fst q)).
Lemma qdiv_ok env x y p q : stands env x p -> stands env y q -> y <> 0 -> stands env (x / y) (qdiv p q).
Proof.
  intros [E1 N1] [E2 N2] Z. apply cancel_ok. unfold stands. cbn [fst snd Meaning.eval].
  rewrite prods_app, factors_ok, product_ok, <- E1, <- E2. split; [now field|]. now repeat apply prods_not_0.
Qed.
Definition whole (p : expr) : quotient := (p, []).
Lemma whole_ok env x p : val env p = x -> stands env x (whole p).
Proof. intro H. unfold stands; cbn. rewrite H. split; lra. Qed.

(* What does not hold the innermost index, without it. *)
Definition lower e := if existsb (Nat.eqb O) (indices e) then None else Some (rename pred e).
Fixpoint lowered l := match l with
  | [] => Some []
  | x :: l => match lower x, lowered l with Some y, Some m => Some (y :: m) | _, _ => None end
  end.
Lemma lowered_ok p env l : forall m, lowered l = Some m -> prods (p :: env) l = prods env m.
Proof.
  induction l; cbn; intro m; [now intros [= <-]|]. unfold lower. destruct existsb eqn:E; [easy|].
  destruct lowered; [|easy]. intros [= <-]; cbn. rewrite (IHl l0) by easy. f_equal. apply rename_ok. intros [|x] H; [|easy].
  assert (existsb (Nat.eqb O) (indices a) = true) by (apply existsb_exists; exists O; auto). congruence.
Qed.
Definition total s n := match n with Num 1 => Size s | _ => Sum s n end.
Lemma total_ok s n env : val env (total s n) = sum (size s) (fun i => val (Some (s, i) :: env) n).
Proof.
  assert (H : sum (size s) (fun i => val (Some (s, i) :: env) (Num 1)) = INR (size s)).
  { cbn. induction (size s) as [|m]; [easy|]. cbn [sum]. rewrite IHm, S_INR. ring. }
  unfold total. destruct n; try easy. destruct z; try easy. destruct p; try easy.
Qed.
Definition qsum s (q : quotient) : option quotient := option_map (fun d => cancel (total s (fst q), d)) (lowered (snd q)).

Lemma positive_ok e : forall env, positive plus e = true -> 0 < eval env e.
Proof.
  destruct W as [P [Q _]].
  induction e; cbn; intros env H; try easy; try (apply andb_prop in H as [H1 H2]).
  - apply IZR_lt. now apply Z.ltb_lt.
  - apply lt_0_INR. apply P.
  - apply existsb_exists in H as [x [I E]]. apply Nat.eqb_eq in E; subst. now apply Q.
  - specialize (IHe1 env H1); specialize (IHe2 env H2); lra.
  - apply Rmult_lt_0_compat; auto.
  - apply Rdiv_lt_0_compat; auto.
  - apply exp_pos.
  - specialize (P s). destruct (size s) as [|m]; [lia|]. clear P.
    induction m as [|m IH]; cbn [sum]; [specialize (IHe (Some (s, O) :: env) H); lra|].
    cbn [sum] in IH. specialize (IHe (Some (s, S m) :: env) H). lra.
Qed.

(* [mode] says which divisors stay as letters: none, all but numbers, or those that hold an index that is bound. In mode 3
   a sum that is somewhere a divisor is a letter wherever it occurs. *)
Variable mode : nat.
Definition stays depth b :=
  match mode, b with
  | _, Num _ => false
  | O, _ => false
  | 1%nat, _ => true
  | _, b => existsb (fun x => x <? depth)%nat (indices b)
  end.
Definition both {A B C} (f : A -> B -> C) (a : option A) (b : option B) : option C :=
  match a, b with Some a, Some b => Some (f a b) | _, _ => None end.
Definition known (e : expr) : option expr :=
  match mode, e with
  | 3%nat, (Sum _ _ | Add _ _) => code (Value (compact e)) (free_in e)
  | _, _ => None
  end.
Lemma known_ok e p env : known e = Some p -> val env p = eval env e.
Proof.
  assert (H : code (Value (compact e)) (free_in e) = Some p -> val env p = eval env e)
    by (intro E; rewrite (code_ok _ _ _ env E); cbn [base]; now rewrite <- compact_ok).
  unfold known. destruct mode as [|[|[|[|]]]]; try easy. now destruct e.
Qed.
Fixpoint clear depth (e : expr) : option quotient :=
  match known e with Some p => Some (whole p) | None =>
  match e with
  | Num _ | Size _ | Is _ _ _ => Some (whole e)
  | Letter k at_ => option_map whole (code (Base k) at_)
  | Exp a => option_map (fun l => whole (product l)) (powers (terms a))
  | Fun _ _ => option_map whole (code (Value (compact e)) (free_in e))
  | Add a b => both qadd (clear depth a) (clear depth b)
  | Mul a b => both (fun p q => cancel (qmul p q)) (clear depth a) (clear depth b)
  | Div a b =>
      if stays depth b
      then both qmul (clear depth a) (option_map whole (code (Value (compact (Div (Num 1) b))) (free_in (Div (Num 1) b))))
      else both qdiv (clear depth a) (clear depth b)
  | Sum s b => match clear (S depth) b with Some q => qsum s q | None => None end
  end end.
Theorem clear_ok e : forall depth env q, clear depth e = Some q -> defined env e -> stands env (eval env e) q.
Proof.
  induction e; cbn [clear]; intros depth env q;
    (destruct known eqn:K; [intros [= <-] _; apply whole_ok; now apply known_ok | clear K]).
  - intros [= <-] _. now apply whole_ok.
  - intros [= <-] _. now apply whole_ok.
  - destruct code eqn:E; [|easy]. intros [= <-] _. apply whole_ok. now rewrite (code_ok _ _ _ env E).
  - intros [= <-] _. now apply whole_ok.
  - destruct (clear depth e1) eqn:E1; [|easy]. destruct (clear depth e2) eqn:E2; [|easy]. intros [= <-] [D1 D2].
    cbn [Meaning.eval]. apply qadd_ok; eauto.
  - destruct (clear depth e1) eqn:E1; [|easy]. destruct (clear depth e2) eqn:E2; [|easy]. intros [= <-] [D1 D2].
    cbn [Meaning.eval]. apply cancel_ok, qmul_ok; eauto.
  - destruct (stays depth e2).
    + destruct (clear depth e1) eqn:E1; [|easy]. destruct code eqn:E; [|easy]. intros [= <-] [D1 _]. cbn [option_map].
      replace (eval env (Div e1 e2)) with (eval env e1 * eval env (Div (Num 1) e2)) by (cbn; unfold Rdiv; ring).
      apply qmul_ok; [eauto|]. apply whole_ok. rewrite (code_ok _ _ _ env E). cbn [base]. now rewrite <- compact_ok.
    + destruct (clear depth e1) eqn:E1; [|easy]. destruct (clear depth e2) eqn:E2; [|easy]. intros [= <-] [D1 [D2 P]].
      cbn [Meaning.eval]. apply qdiv_ok; eauto.
      destruct (positive plus e2) eqn:Q; [apply Rgt_not_eq; now apply positive_ok | exact P].
  - destruct (powers (terms e)) eqn:E; [|easy]. intros [= <-] _. apply whole_ok. rewrite product_ok.
    cbn [Meaning.eval]. rewrite <- terms_ok. now apply powers_ok.
  - destruct (clear (S depth) e) as [[n d]|] eqn:C; [|easy]. unfold qsum. cbn [fst snd].
    destruct (lowered d) as [d'|] eqn:L; [|easy]. intros [= <-] D. cbn in D. apply cancel_ok.
    assert (H : forall i, (i < size s)%nat -> eval (Some (s, i) :: env) e * prods env d' = val (Some (s, i) :: env) n
      /\ prods env d' <> 0).
    { intros i I. destruct (IHe _ _ _ C (D i I)) as [E N]. cbn [fst snd] in *.
      assert (Q : prods (Some (s, i) :: env) d = prods env d') by exact (lowered_ok _ env _ _ L).
      now rewrite Q in E, N. }
    split; cbn [fst snd].
    + rewrite total_ok. cbn [Meaning.eval]. rewrite <- sum_scaled. apply sum_ext. intros i I. now apply H.
    + destruct W as [P _]. now apply (H O).
  - destruct code eqn:E; [|easy]. intros [= <-] _. apply whole_ok. rewrite (code_ok _ _ _ env E). cbn [base].
    now rewrite <- compact_ok.
Qed.
End Clearing.

(* 6. The names that occur, and the check. *)
Fixpoint names (e : expr) : list name :=
  match e with
  | Letter k _ => [Base k]
  | Add a b | Mul a b => names a ++ names b
  | Div a b => Value (compact (Div (Num 1) b)) :: Value (compact b) :: names a ++ names b
  | Sum _ b => names b
  | Exp a => map (fun x => Power (compact (snd (coefficient x)))) (terms a)
  | Fun _ _ => [Value (compact e)]
  | _ => []
  end.
Fixpoint plain (e : expr) : bool :=
  match e with Add a b | Mul a b => plain a && plain b | Sum _ b => plain b | Div _ _ | Exp _ | Fun _ _ => false | _ => true end.
Lemma plain_ok size J G e : plain e = true -> forall env, eval size J G env e = peval (fun t => upto (size t)) J env e.
Proof.
  induction e; cbn; intros P env; try easy; try (apply andb_prop in P as [P1 P2]; rewrite IHe1, IHe2; easy).
  - now rewrite upto_length.
  - rewrite sum_over. apply over_ext. auto.
Qed.
(* Free indices that do not occur in what is left have no part in it. *)
Definition known_sorts (free : list nat) e : bool := forallb (fun x => x <? length free)%nat (free_in e).
Definition sorts_of (free : list nat) e := map (fun x => nth x free O) (free_in e).
Lemma placed_in size free env l : Forall2 (placed size) free env -> forallb (fun x => x <? length free)%nat l = true ->
  Forall2 (placed size) (map (fun x => nth x free O) l) (map (look env) l).
Proof.
  intro P. rewrite forallb_forall. induction l as [|x l IH]; cbn [map]; intro H; constructor.
  - specialize (H x (or_introl eq_refl)). apply Nat.ltb_lt in H. clear IH. revert x H. unfold look.
    induction P as [|s p free env Q P IH]; cbn [length nth]; intros [|x] H; [lia | lia | easy|]. apply IH. lia.
  - apply IH. intros y I. apply H. now right.
Qed.
Definition check mode K circles (free : list nat) (left right : expr) : bool :=
  let tbl := nodup name_eq (names left ++ names right) in
  match clear tbl mode 0 left, clear tbl mode 0 right with
  | Some p, Some q =>
      let '(c, l, m) := common (snd p) (snd q) in
      let n := Add (Mul (fst p) (product m)) (Mul (Num (-1)) (Mul (fst q) (product l))) in
      plain (compact n) && known_sorts free n &&
        vanishes (inverse_pairs 0 tbl) (circle_pairs circles tbl) K (2 * length tbl) (sorts_of free n) (compact n)
  | _, _ => false
  end.
Theorem check_ok mode K plus circles free left right :
  check mode K circles free left right = true -> equal plus circles free left right.
Proof.
  unfold check. set (tbl := nodup name_eq _). intros H size letter G W env P Dl Dr.
  destruct (clear tbl mode 0 left) as [[n d]|] eqn:C1; [|easy]. destruct (clear tbl mode 0 right) as [[n' d']|] eqn:C2; [|easy].
  cbn [fst snd] in H. destruct (common d d') as [[c l] m] eqn:C.
  set (e := Add _ _) in H. apply andb_prop in H as [H H2]. apply andb_prop in H as [H1 H3].
  pose proof (clear_ok plus circles size letter G W tbl mode left 0 env _ C1 Dl) as [E1 N1].
  pose proof (clear_ok plus circles size letter G W tbl mode right 0 env _ C2 Dr) as [E2 N2].
  pose proof (vanishes_ok _ _ K _ _ _ H2 size _ (meaning_lawful plus circles size letter G W tbl) _
    (placed_in size free env (free_in e) P H3)) as Z.
  rewrite <- (plain_ok size _ G _ H1), <- compact_ok in Z. subst e. apply (common_ok size letter G tbl env) in C as [Q1 Q2].
  cbn [fst snd] in *. cbn [eval] in Z. rewrite !product_ok, <- E1, <- E2, Q1, Q2 in Z. rewrite Q1 in N1. rewrite Q2 in N2.
  set (a := prods _ _ _ _ _ c) in *; set (b := prods _ _ _ _ _ l) in *; set (e := prods _ _ _ _ _ m) in *.
  set (x := eval _ _ _ _ left) in *; set (y := eval _ _ _ _ right) in *.
  assert (Y : (x - y) * (a * b * e) = 0) by (rewrite <- Z; ring).
  destruct (Rmult_integral _ _ Y) as [Y1|Y1]; [lra|exfalso].
  destruct (Rmult_integral _ _ Y1) as [Y2|Y2]; [auto | rewrite Y2 in N2; apply N2; ring].
Qed.
