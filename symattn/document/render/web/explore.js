'use strict';
// The page to explore: inputs are edited in place, every step is computed again by a worker, so that typing never waits,
// and the link holds what was chosen.
{
  const { Fraction, Quotient, FORMATS, formula, text } = globalThis.exactly;
  const { steps, cellOf, attributes } = globalThis.explored;
  const page = document.querySelector('.symattn'),
    sections = [...page.querySelectorAll('.step>.sa-main')];
  const results = sections.map(section => section.appendChild(document.createElement('div')));
  const now = document.createElement('div');
  now.className = 'now';
  const say = words => {
    page.querySelector('.wrong').textContent = words;
  };
  const MAX_CHARACTERS = 12, // of a number
    DIGITS = 9,
    MOST = 6,
    WORDS = [
      ['w_q', 'Q', 'query', 'queries'],
      ['w_k', 'K', 'key', 'keys'],
      ['w_v', 'V', 'value', 'values'],
    ];
  const escape = s => s.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

  // -- state ----------------------------------------------------------------------------------------------------------
  const written = matrix => matrix.map(row => row.join(',')).join(';');
  const read = words => words.split(';').map(row => row.split(','));
  const plain = state => ({
    ...Object.fromEntries(['x', 'w_q', 'w_k', 'w_v'].map(name => [name, written(state[name])])),
    words: state.words.join(','),
    heads: `${state.heads}`,
    scale: state.scale,
    causal: state.causal ? '1' : '0',
    temperature: state.temperature,
    format: state.format,
  });
  // What a link says, wherever it is sound: its arrays fit each other, and no size is beyond the page.
  function opened() {
    const first = JSON.parse(page.dataset.state),
      asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const told = { ...first, ...asked },
      arrays = ['x', 'w_q', 'w_k', 'w_v'];
    const state = {
      words: told.words.split(','),
      heads: told.heads === '2' ? 2 : 1,
      scale: told.scale === 'none' ? 'none' : 'root',
      causal: told.causal === '1',
      temperature: told.temperature,
      format: told.format in FORMATS ? told.format : 'float32',
    };
    for (const name of arrays) state[name] = read(told[name]);
    const even = m =>
      m.length <= MOST && m[0].length <= MOST && m.every(row => row.length === m[0].length && row.every(Fraction.of));
    const fits =
      arrays.every(name => even(state[name])) &&
      arrays.slice(1).every(name => state[name].length === state.x[0].length) &&
      state.w_q[0].length === state.w_k[0].length &&
      !(state.w_q[0].length % state.heads) &&
      !(state.w_v[0].length % state.heads) &&
      Fraction.of(told.temperature)?.n > 0n;
    if (fits || !location.hash) return state;
    location.hash = '';
    return opened();
  }
  let state = opened();

  // -- all of it ------------------------------------------------------------------------------------------------------
  // The worker that computes; null where pages may have none, and the page then computes by itself.
  function started() {
    const parts = ['exact', 'steps'].map(name => document.querySelector(`script[data-part=${name}]`).textContent);
    const answer =
      'onmessage = ({ data: { id, state, form } }) => { let found; try { found = explored.steps(state, form); } ' +
      'catch (error) { found = { error: String(error) }; } postMessage({ id, ...found }); };';
    try {
      const made = new Worker(URL.createObjectURL(new Blob([[...parts, answer].join('\n')])));
      made.onmessage = ({ data }) => received(data);
      made.onerror = event => {
        event.preventDefault();
        worker = null;
        draw();
      };
      return made;
    } catch {
      return null;
    }
  }
  const MAX_WAIT = 1500; // milliseconds that a newer edit waits for an older one
  let worker = started(),
    computing = null, // the question that the worker has, and the time at which it was asked
    waiting = false,
    asked = 0,
    form = 'exact';
  function ask_() {
    waiting = false;
    computing = { id: ++asked, since: performance.now() };
    worker.postMessage({ id: asked, state, form });
  }
  // Show what a change leads to; of several changes during one computation, the last is computed.
  function draw() {
    form = page.querySelector('.forms input:checked')?.dataset.form ?? form;
    history.replaceState(null, '', `#${new URLSearchParams(plain(state))}`);
    page.setAttribute('aria-busy', 'true');
    if (!worker) {
      let found;
      try {
        found = steps(state, form);
      } catch (error) {
        found = { error: String(error) };
      }
      received({ id: asked, ...found });
    } else if (!computing) ask_();
    else {
      waiting = true;
      if (performance.now() - computing.since < MAX_WAIT) return;
      worker.terminate();
      worker = started();
      ask_();
    }
  }
  function received({ id, sections: shown, beside, error }) {
    if (worker && id !== computing?.id) return;
    computing = null;
    if (waiting) {
      ask_();
      return;
    }
    page.setAttribute('aria-busy', 'false');
    say(error ? `These numbers lie too close for ${DIGITS} digits: the steps below are those of the inputs before.` : '');
    if (error) return;
    shown.forEach((html, i) => {
      results[i + 1].innerHTML = html;
    });
    const before = [...now.querySelectorAll('td')].map(at => at.textContent);
    now.innerHTML = beside;
    [...now.querySelectorAll('td')].forEach((at, i) => {
      at.classList.toggle('new', before.length > 0 && before[i] !== at.textContent);
    });
    page.dispatchEvent(new Event('symattn:changed'));
  }

  // -- inputs ---------------------------------------------------------------------------------------------------------
  const low = s => s.replace(/_([A-Z])/g, '<sub>$1</sub>');
  const input = (value, said, more = '') => `<input value="${escape(value)}" aria-label="${said}" size="4"${more}>`;
  function edited(array, letter, title, symbol, role) {
    const rows = state[array]
      .map((row, i) => {
        const word =
          array === 'x'
            ? `<th>${input(state.words[i] ?? '', `word ${i + 1}`, ` data-word="${i}" class="word" placeholder="token ${i + 1}"`)}</th>`
            : '';
        return `<tr>${word}${row
          .map(
            (value, j) =>
              `<td${cellOf(array, letter, i, j, Quotient.of(Fraction.of(value)))}>` +
              `${input(value, `${symbol}, row ${i + 1}, column ${j + 1}`, ` data-at="${array} ${i} ${j}" inputmode="text"`)}</td>`,
          )
          .join('')}</tr>`;
      })
      .join('');
    return (
      `<figure${attributes({ array, of: '', symbol, role })}><figcaption>${title}: ${low(symbol)}</figcaption>` +
      `<table class="edit"><tbody>${rows}</tbody></table></figure>`
    );
  }
  const option = (value, words_, now) =>
    `<option value="${value}"${value === now ? ' selected' : ''}>${words_}</option>`;
  const select = (key, title, pairs, now) =>
    `<label>${low(title)} <select data-key="${key}">${pairs.map(([value, w]) => option(value, w, now)).join('')}</select></label>`;
  function controls() {
    const upTo = (step = 1) =>
      Array.from({ length: MOST / step }, (_, i) => [`${(i + 1) * step}`, `${(i + 1) * step}`]);
    const sizes = [
      ['n', 'tokens', state.x.length, 1],
      ['d_model', 'numbers for each', state.x[0].length, 1],
      ['d_k', 'columns of W_Q, W_K', state.w_q[0].length, state.heads],
      ['d_v', 'columns of W_V', state.w_v[0].length, state.heads],
    ];
    return (
      `<div class="controls">${sizes.map(([key, title, now, step]) => select(key, title, upTo(step), `${now}`)).join('')}` +
      select(
        'heads',
        'heads',
        [
          ['1', '1'],
          ['2', '2'],
        ],
        `${state.heads}`,
      ) +
      select(
        'scale',
        'scale',
        [
          ['none', 'none'],
          ['root', '1/√dₖ'],
        ],
        state.scale,
      ) +
      select(
        'causal',
        'mask',
        [
          ['0', 'none'],
          ['1', 'causal'],
        ],
        state.causal ? '1' : '0',
      ) +
      `<label>temperature ${input(state.temperature, 'temperature', ' data-key="temperature"')}</label>` +
      select(
        'format',
        'format',
        Object.keys(FORMATS).map(f => [f, f]),
        state.format,
      ) +
      `<button type="button" class="link">Copy the link</button></div>`
    );
  }
  function ask() {
    const weights = WORDS.map(([array, letter, role, title]) =>
      edited(array, `w${letter.toLowerCase()}`, `Projection of the ${title}`, `W_${letter}`, role),
    );
    const arrays_ = `<div class="row">${edited('x', 'x', 'Tokens', 'X', 'input')}${weights.join('')}</div>`;
    results[0].innerHTML = `${controls()}<p class="wrong" role="alert"></p><div class="beside">${arrays_}</div>`;
    results[0].querySelector('.beside').append(now);
  }
  const resized = (matrix, rows, columns) =>
    Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => matrix[i]?.[j] ?? '0'));
  function resize(key, size) {
    const [n, d, k, v] = [state.x.length, state.x[0].length, state.w_q[0].length, state.w_v[0].length];
    const now = { n, d_model: d, d_k: k, d_v: v, [key]: size };
    if (key === 'heads') for (const w of ['d_k', 'd_v']) now[w] = Math.min(MOST, Math.ceil(now[w] / size) * size);
    state.x = resized(state.x, now.n, now.d_model);
    for (const w of ['w_q', 'w_k']) state[w] = resized(state[w], now.d_model, now.d_k);
    state.w_v = resized(state.w_v, now.d_model, now.d_v);
  }
  function changed({ target }) {
    const { at, key, word } = target.dataset,
      value = target.value.trim();
    if (at || key === 'temperature') {
      const found = Fraction.of(value),
        wrong = !found || (key && found.n <= 0n) || value.length > MAX_CHARACTERS;
      target.toggleAttribute('aria-invalid', false);
      if (wrong) target.setAttribute('aria-invalid', 'true');
      const long = value.length > MAX_CHARACTERS ? `; at most ${MAX_CHARACTERS} characters` : '';
      say(
        wrong
          ? `${value || 'nothing'} is not ${key ? 'a positive' : 'a'} number: write 2, −1, 1/3 or 0.25${long}`
          : '',
      );
      if (wrong) return;
      const clear_ = value.replace('−', '-').replace(/\s/g, '');
      if (key) state.temperature = clear_;
      else {
        const [array, i, j] = at.split(' ');
        state[array][i][j] = clear_;
        Object.assign(target.closest('td').dataset, { t: text(formula(Quotient.of(found))) });
      }
    } else if (word) state.words[word] = target.value.replace(/[,;]/g, '');
    else if (key === 'causal') state.causal = value === '1';
    else if (key === 'scale' || key === 'format') state[key] = value;
    else if (key) {
      if (key === 'heads') state.heads = +value;
      resize(key, +value);
      ask();
    } else return;
    draw();
  }
  page.addEventListener('input', changed);
  page.addEventListener('click', ({ target }) => {
    if (target.matches('.link'))
      navigator.clipboard.writeText(location.href).then(() => {
        target.textContent = 'Copied';
      });
  });
  addEventListener('hashchange', () => {
    state = opened();
    ask();
    draw();
  });
  ask();
  draw();
}
