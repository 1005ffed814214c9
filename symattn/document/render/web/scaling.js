'use strict';
// Scores of vectors with entries ±1, each as likely: their distribution is known exactly, and so are the weights of a
// row.
{
  const { Fraction, Quotient, decimal } = globalThis.exactly;
  const page = document.querySelector('.symattn'),
    [scores, weights] = [...page.querySelectorAll('.step>.sa-main')].map(main =>
      main.appendChild(document.createElement('div')),
    );
  const KEYS = 12,
    WIDE = 480,
    FOOT = 150,
    MOST = 1024;
  const ONE = new Fraction(1n);

  // Signs from a fixed seed: the first entries of longer vectors are those of shorter ones.
  function signs(seed, count) {
    let a = seed;
    return Array.from({ length: count }, () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return (t >>> 13) & 1 ? 1 : -1;
    });
  }
  const query = signs(1, MOST),
    keys = Array.from({ length: KEYS }, (_, j) => signs(j + 2, MOST));
  const score = (d, j) => query.slice(0, d).reduce((s, x, l) => s + x * keys[j][l], 0);

  // P(q·k = d − 2m) = C(d, m) / 2^d, as fractions of whole numbers.
  function distribution(d) {
    const found = [];
    let c = 1n;
    for (let m = 0; m <= d; m++) {
      found.push([d - 2 * m, Number((c << 40n) >> BigInt(d)) / 2 ** 40]);
      c = (c * BigInt(d - m)) / BigInt(m + 1);
    }
    return found;
  }
  const text = (x, y, words, more = '') =>
    `<text x="${x}" y="${y}" font-size="13" fill="var(--sa-mute)"${more}>${words}</text>`;
  const ROOT = 'q·k/√d<tspan dy="3" font-size="72%">k</tspan>';
  // Bars for the values of both distributions on one axis from −FAR to FAR: above it unscaled, below it scaled. The
  // highest bar of each has the same height.
  const FAR = 100,
    BAR = 120;
  const place = x => (WIDE / 2) * (1 + x / FAR);
  function bars(points, role, up) {
    const most = Math.max(...points.map(([, p]) => p)),
      apart = points.length > 1 ? place(points[0][0]) - place(points[1][0]) : 24,
      wide = Math.min(24, Math.max(0.8, apart - 1));
    return points
      .filter(([x, p]) => Math.abs(x) <= FAR && p > most / 1000)
      .map(([x, p]) => {
        const high = (BAR * p) / most;
        return (
          `<rect x="${(place(x) - wide / 2).toFixed(2)}" y="${(up ? FOOT - high : FOOT).toFixed(2)}" ` +
          `width="${wide.toFixed(2)}" height="${high.toFixed(2)}" fill="var(--sa-${role})"/>`
        );
      })
      .join('');
  }
  function histograms(points, scaled) {
    const ticks = [-FAR, 0, FAR]
      .map((v, i) =>
        text(place(v), FOOT + 18, `${v}`.replace('-', '−'), ` text-anchor="${['start', 'middle', 'end'][i]}"`),
      )
      .filter((_, i) => i !== 1)
      .join('');
    const high = 2 * FOOT;
    return (
      `<svg viewBox="0 0 ${WIDE} ${high}" role="img" aria-label="Distributions of q·k and q·k/√d_k on one axis">` +
      `${bars(points, 'ink', true)}${bars(scaled, 'score', false)}<path d="M0 ${FOOT}H${WIDE}" stroke="var(--sa-rule)"/>` +
      `${ticks}${text(0, 16, 'q·k')}${text(0, high - 8, ROOT)}</svg>`
    );
  }
  const HIGHS = '⁰¹²³⁴⁵⁶⁷⁸⁹';
  const power = s => {
    const [a, b] = s.split('e-');
    return b ? `${a}·10⁻${[...`${+b}`].map(c => HIGHS[c]).join('')}` : a;
  };
  function row(exponents, root, role, title, said) {
    const sum = new Map();
    for (const k of exponents) sum.set(`${k}`, { k, c: ONE.plus(sum.get(`${k}`)?.c ?? new Fraction(0n)) });
    const below = [...sum.values()].sort((s, t) => s.k.compare(t.k));
    const shown = exponents.map(k => decimal(new Quotient([{ k, c: ONE }], below, root), 3));
    const drawn = shown
      .map(
        (w, j) =>
          `<rect x="60" y="${24 + 15 * j}" width="${(300 * Number(w)).toFixed(1)}" height="11" fill="var(--sa-${role})"/>` +
          text(0, 34 + 15 * j, `key ${j + 1}`) +
          text(Math.max(66, 66 + 300 * Number(w)), 34 + 15 * j, power(w)),
      )
      .join('');
    const top = shown.reduce((a, b) => (Number(b) > Number(a) ? b : a));
    return `<svg viewBox="0 0 ${WIDE} ${34 + 15 * KEYS}" role="img" aria-label="${said}: the largest weight is ${top}">${text(0, 14, title)}${drawn}</svg>`;
  }
  function draw(d) {
    let [f, root] = [1n, BigInt(d)];
    for (let m = 2n; m * m <= root; m++) while (root % (m * m) === 0n) [root, f] = [root / (m * m), f * m];
    const points = distribution(d),
      size = Math.sqrt(d),
      integers = Array.from({ length: KEYS }, (_, j) => BigInt(score(d, j)));
    out.textContent = `${d}`;
    facts.innerHTML = `Var(q·k) = <b>${d}</b>, Var(q·k/√d<sub>k</sub>) = <b>1</b>: exactly, for entries ±1, each as likely.`;
    const scaled = points.map(([x, p]) => [x / size, p]);
    pictures[0].innerHTML = histograms(points, scaled);
    pictures[1].innerHTML =
      row(
        integers.map(s => new Fraction(s)),
        1n,
        'ink',
        'softmax of q·k',
        'Without the root',
      ) +
      row(
        integers.map(s => new Fraction(s, f * root)),
        root,
        'score',
        `softmax of ${ROOT}`,
        'With the root',
      );
  }
  scores.innerHTML =
    '<p class="controls"><label>d<sub>k</sub> <input type="range" min="0" max="10" step="1" aria-label="d_k"> <output></output></label></p>' +
    '<p class="facts"></p><div class="arrows plots"></div>';
  weights.innerHTML = '<div class="arrows plots"></div>';
  const slider = scores.querySelector('input'),
    out = scores.querySelector('output'),
    facts = scores.querySelector('.facts');
  const pictures = [scores, weights].map(at => at.querySelector('.plots'));
  const asked = Number(new URLSearchParams(location.hash.slice(1)).get('d_k') ?? JSON.parse(page.dataset.state).d_k);
  slider.value = Math.round(Math.log2(Math.min(MOST, Math.max(1, asked || 64))));
  slider.addEventListener('input', () => {
    draw(2 ** slider.value);
    history.replaceState(null, '', `#d_k=${2 ** slider.value}`);
  });
  draw(2 ** slider.value);
}
