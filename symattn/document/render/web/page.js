'use strict';
// What a page of symattn does: one step at a time, forms for all arrays at once, and where a number comes from.
{
  const root = document.documentElement,
    page = document.querySelector('.symattn');
  const all = (selector, at = page) => [...at.querySelectorAll(selector)];
  const make = (tag, props = {}, ...inside) => {
    const at = Object.assign(document.createElement(tag), props);
    at.append(...inside);
    return at;
  };
  page.classList.add('js');

  // -- paper ----------------------------------------------------------------------------------------------------------
  const dark = () =>
    (root.dataset.theme ?? (matchMedia('(prefers-color-scheme:dark)').matches ? 'dark' : '')) === 'dark';
  const theme = make('button', { type: 'button', className: 'theme' });
  const label = () => {
    theme.textContent = dark() ? 'light' : 'dark';
  };
  theme.onclick = () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    label();
  };
  label();
  page.querySelector('header')?.firstElementChild?.after(theme);

  // -- copies as LaTeX ------------------------------------------------------------------------------------------------
  const SIGNS = { '−': '-', '·': '\\cdot ', '≈': '\\approx ', '∞': '\\infty ', '\u2062': '', '[': '\\left[', ']': '\\right]' };
  const PARTS = {
    mfrac: (a, b) => `\\frac{${a}}{${b}}`,
    msup: (a, b) => `${a}^{${b}}`,
    msub: (a, b) => `${a}_{${b}}`,
    msqrt: (...inside) => `\\sqrt{${inside.join('')}}`,
    mtr: (...cells) => cells.join(' & '),
    mtable: (...rows) => `\\begin{matrix} ${rows.join(' \\\\ ')} \\end{matrix}`,
  };
  function latex(at) {
    const parts = [...at.children].map(latex),
      own = at.textContent;
    if (PARTS[at.localName]) return PARTS[at.localName](...parts);
    if (parts.length) return parts.join('');
    if (at.localName === 'mi' && (own.length > 1 || own === 'e')) return `\\mathrm{${own}}`;
    return [...own].map(x => SIGNS[x] ?? x).join('');
  }
  function copied(at, place, source) {
    if (place.querySelector('.copy')) return;
    const copy = make('button', { className: 'copy', type: 'button', title: 'Copy as LaTeX' }, 'TeX');
    copy.onclick = () =>
      navigator.clipboard.writeText(source()).then(() => {
        copy.textContent = 'copied';
      });
    place.append(copy);
  }
  // A formula as symattn writes it, and an array in the form that is shown.
  function copies() {
    for (const at of all('[data-tex]')) copied(at, at.querySelector('.n') ?? at, () => at.dataset.tex);
    for (const at of all('figure:has(.form)')) {
      const shown = () => all('.form math', at).filter(form => form.checkVisibility());
      copied(at, at.querySelector('figcaption'), () => shown().map(latex).join('\n'));
    }
  }
  copies();
  addEventListener('beforeprint', () =>
    all('details:not(.why *)').forEach(at => {
      at.open = true;
    }),
  );

  // -- steps ----------------------------------------------------------------------------------------------------------
  const links = all('nav.steps a'),
    steps = links.map(a => document.getElementById(a.hash.slice(1)));
  const back = make('button', { type: 'button' }),
    next = make('button', { type: 'button' });
  const keys = make('span', { className: 'keys' });
  const where = make('output', { className: 'where', ariaLive: 'polite' });
  const one = page.classList.contains('one');
  let now = 0;

  function show(number, told = true) {
    if (!steps.length) return;
    now = Math.max(0, Math.min(steps.length - 1, number));
    steps.forEach((step, i) => step.classList.toggle('on', i === now));
    links.forEach((a, i) => {
      if (i === now) a.ariaCurrent = 'step';
      else a.removeAttribute('aria-current');
    });
    back.replaceChildren(...(now ? ['← ', ...links[now - 1].cloneNode(true).childNodes] : []));
    next.replaceChildren(...(now + 1 < steps.length ? [...links[now + 1].cloneNode(true).childNodes, ' →'] : []));
    back.disabled = !now;
    next.disabled = now + 1 >= steps.length;
    clear();
    if (!told) return;
    if (!page.dataset.state) history.replaceState(null, '', links[now].hash); // else the link holds what was chosen
    if (one) scrollTo(0, 0);
    else steps[now].scrollIntoView();
  }
  const asked = () => links.findIndex(a => a.hash === location.hash);
  links.forEach((a, i) => {
    a.onclick = event => {
      event.preventDefault();
      show(i);
    };
  });
  back.onclick = () => show(now - 1);
  next.onclick = () => show(now + 1);
  if (!one) {
    addEventListener(
      'scroll',
      () => {
        const seen = steps.findLastIndex(step => step.getBoundingClientRect().top < innerHeight / 3);
        if (seen >= 0 && seen !== now) show(seen, false);
      },
      { passive: true },
    );
  }
  addEventListener('hashchange', () => {
    if (asked() >= 0) show(asked());
  });

  // -- forms ----------------------------------------------------------------------------------------------------------
  const KEYS = { e: 'exact', d: 'decimal', f: 'float', p: 'as printed', r: 'rounded', u: 'error in ulp' };
  const forms = () => all('.forms input');
  const choose = form =>
    forms()
      .filter(at => at.dataset.form === form)
      .forEach(at => {
        at.checked = true;
      });
  page.addEventListener('change', event => {
    if (event.target.dataset.form) choose(event.target.dataset.form);
  });
  const formOf = key =>
    forms()
      .map(at => at.dataset.form)
      .find(name => name.includes(KEYS[key]));

  // -- where a number comes from --------------------------------------------------------------------------------------
  const cells = (name, at = page) => all(`[data-c="${name}"]`, at);
  const about = name => page.querySelector(`[data-array="${name}"]`)?.dataset ?? {};
  const clear = () => {
    all('.at,.from').forEach(at => at.classList.remove('at', 'from'));
    where.replaceChildren();
  };
  const said = name => cells(name)[0]?.dataset ?? {};
  const arrayOf = name => name.slice(0, name.search(/-\d/));
  const extent = name => {
    const found = [];
    for (let k = 1; cells(name(k)).length; k++) found.push(name(k));
    return found;
  };

  // The cells that an entry is made of, in pairs of factors.
  function sources([rule, a, b], at) {
    const [i, j] = at.slice(-2),
      head = at
        .slice(0, -2)
        .map(x => x + '-')
        .join('');
    const pairs = (f, g) => extent(k => `${a}-${head}${f(k)}`).map((x, k) => [x, `${b}-${head}${g(k + 1)}`]);
    switch (rule) {
      case 'dot':
        return pairs(
          k => `${i}-${k}`,
          k => `${k}-${j}`,
        );
      case 'rows':
        return pairs(
          k => `${i}-${k}`,
          k => `${j}-${k}`,
        );
      case 'softmax':
        return extent(k => `${a}-${head}${i}-${k}`).map(x => [x]);
      case 'products':
        return [[`${a}-${at[0]}-${at[1]}`, `${b}-${at[1]}-${at[2]}`]];
      default:
        return [[`${a}-${at.join('-')}`]];
    }
  }

  // Text with small letters above and below the line as elements: a₁₂, e², e^(1/2), 10⁻⁶.
  const LOW = '₀₁₂₃₄₅₆₇₈₉',
    HIGH = '⁰¹²³⁴⁵⁶⁷⁸⁹⁻';
  const plain = (text, from, to) => [...text].map(x => to[from.indexOf(x)] ?? x).join('');
  function rich(text, role = '') {
    const at = make('span', { className: role ? 'r-' + role : '' });
    for (const part of text.split(/([₀-₉]+|[⁰¹²³⁴-⁹⁻]+|\^\((?:[^()]|\([^()]*\))*\)|\^[\w.√]+|_[A-Z]+)/)) {
      const first = part[0];
      if (LOW.includes(first)) at.append(make('sub', {}, plain(part, LOW, '0123456789')));
      else if (HIGH.includes(first)) at.append(make('sup', {}, plain(part, HIGH, '0123456789−')));
      else if (first === '^') at.append(make('sup', {}, part.slice(1).replace(/^\((.*)\)$/, '$1')));
      else if (first === '_') at.append(make('sub', {}, part.slice(1)));
      else if (/^[A-Za-z]$/.test(part) && part !== 'e') at.append(make('i', {}, part));
      else if (part) at.append(part);
    }
    return at;
  }
  const exponent = x => {
    const [a, b] = x.split(/e/);
    return b ? `${a}·10${plain(String(+b), '0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻')}` : a;
  };
  const brief = d => {
    if (d.t.length <= 9 || !d.d) return '';
    const x = Number(d.d.replace('−', '-'));
    return exponent(Math.abs(x) < 1e-4 ? x.toExponential(3) : x.toPrecision(4)).replace(/^-/, '−');
  };
  const factor = x => {
    const d = said(x),
      value = brief(d) || d.t;
    return rich(/^[^·]*[/+−]/.test(value) ? `(${value})` : value, about(arrayOf(x)).role);
  };
  const letter = x => rich(said(x).n, about(arrayOf(x)).role);
  const between = (parts, sign) => parts.flatMap((part, i) => (i ? [sign, part] : [part])).flat();

  // How the entry of a cell is made, as parts of one line.
  function line(name, rule, of) {
    const d = said(name),
      array = arrayOf(name),
      at = name.slice(array.length + 1).split('-'),
      role = about(array).role;
    const own = letter(name),
      end = [rich(d.t, role), ...(d.d ? [' ≈ ', exponent(d.d)] : [])];
    if (!rule[0] || of.some(pair => pair.some(x => said(x).t === undefined))) return [own, ' = ', ...end];
    if (rule[0] === 'each') return [own, ' = ', ...end, ', from ', letter(of[0][0]), ' = ', factor(of[0][0])];
    if (rule[0] === 'softmax') {
      const power = ([x]) => (said(x).t === '−∞' ? '0' : rich(`e^(${said(x).t})`, about(arrayOf(x)).role));
      return [own, ' = ', power(of[at.at(-1) - 1]), ' / (', ...between(of.map(power), ' + '), ') = ', ...end];
    }
    const sum = between(
      of.map(pair => between(pair.map(factor), '·')),
      ' + ',
    );
    const rough = of.flat().some(x => brief(said(x))),
      is = rough ? ' ≈ ' : ' = ';
    const words = {
      dot: ['row ' + at.at(-2) + ' of ', ' · column ' + at.at(-1) + ' of '],
      rows: ['row ' + at.at(-2) + ' of ', ' · row ' + at.at(-1) + ' of '],
    }[rule[0]];
    const names = words ? rule.slice(1).flatMap((x, k) => [words[k], rich(about(x).symbol ?? x, about(x).role)]) : [];
    const whole = rough && d.d ? [exponent(d.d)] : end;
    return [own, ...(words ? [' = '] : []), ...names, is, ...sum, is, ...whole];
  }

  function point(cell) {
    clear();
    const name = cell.dataset.c,
      array = arrayOf(name),
      step = cell.closest('.step') ?? page;
    const rule = (about(array).of ?? '').split(' '),
      of = rule[0]
        ? sources(
            rule,
            name
              .slice(array.length + 1)
              .split('-')
              .map(Number),
          )
        : [];
    cells(name, step).forEach(x => x.classList.add('at'));
    of.flat().forEach(source => cells(source, step).forEach(x => x.classList.add('from')));
    where.replaceChildren(...line(name, rule, of));
  }
  for (const kind of ['mouseover', 'focusin', 'click']) {
    page.addEventListener(kind, event => {
      const cell = event.target.closest?.('[data-c]');
      if (cell) point(cell);
    });
  }

  // One cell of each array can be reached by Tab; the arrows go on from there.
  function reach() {
    for (const array of all('[data-c]').map(at => at.closest('table,mtable'))) {
      all('[data-c]', array).forEach((at, i) => at.setAttribute('tabindex', i ? -1 : 0));
    }
  }
  function beside(cell, key) {
    const row = cell.parentElement,
      i = [...row.children].indexOf(cell);
    const next = {
      ArrowLeft: cell.previousElementSibling,
      ArrowRight: cell.nextElementSibling,
      ArrowUp: row.previousElementSibling?.children[i],
      ArrowDown: row.nextElementSibling?.children[i],
    }[key];
    return next?.dataset?.c ? next : undefined;
  }

  addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.('input:not([type=radio]),select'))
      return;
    const cell = event.target.closest?.('[data-c]'),
      key = event.key;
    if (cell && key.startsWith('Arrow')) beside(cell, key)?.focus();
    else if (cell && key === 'Escape') {
      cell.blur();
      clear();
    } else if (event.target.type === 'radio' && key.startsWith('Arrow')) return;
    else if (key === 'ArrowRight' || (one && key === 'PageDown')) show(now + 1);
    else if (key === 'ArrowLeft' || (one && key === 'PageUp')) show(now - 1);
    else if (KEYS[key]) choose(formOf(key));
    else if (key === 't') theme.click();
    else return;
    event.preventDefault();
  });

  keys.textContent =
    (steps.length ? '← → steps · ' : '') +
    (forms().length ? 'e d f p r form of all numbers · ' : '') +
    't dark or light';
  if (steps.length || all('[data-of]').length) {
    const ends = make('div', { className: 'ends' }, back, keys, next);
    page.append(make('div', { className: 'bar' }, ...(all('[data-c]').length ? [where] : []), ends));
  }
  reach();
  page.addEventListener('symattn:changed', () => {
    reach();
    copies();
  });
  show(Math.max(0, asked()), false);
  if (asked() > 0) show(asked());
}
