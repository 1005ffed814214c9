// What the standard of pages speaks of, as the browser lays it out: one record for a page.
// It runs within the page, so that it may use nothing from here.
export function facts() {
  const page = document.querySelector('.symattn') ?? document.body, root = document.documentElement;
  const rem = parseFloat(getComputedStyle(root).fontSize);
  const look = at => getComputedStyle(at);
  const shown = at => at.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const all = (selector, at = page) => [...at.querySelectorAll(selector)].filter(shown);
  const box = at => { const b = at.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; };
  const words = at => at.textContent.replace(/\s+/g, ' ').trim();
  const brush = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  const colour = text => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = text;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    const hex = '#' + [r, g, b].map(x => x.toString(16).padStart(2, '0')).join('').toUpperCase();
    return a === 255 ? hex : a ? `${Math.round(a / 2.55)}%` : '';
  };
  const probe = page.appendChild(document.createElement('i'));
  const variables = Object.fromEntries(['paper', 'ink', 'mute', 'rule', 'tint', 'query', 'key', 'value', 'score', 'weight', 'output', 'input'].map(
    name => { probe.style.color = `var(--sa-${name})`; return [name, colour(look(probe).color)]; }));
  probe.remove();

  // Every run of text with its look; what looks alike in the same kind of place is counted once.
  const texts = new Map();
  const places = [['mtd', 'mtd'], ['svg', 'svg'], ['math', 'math'], ['.where', 'where'], ['sub,sup,small', 'small'],
    ['button,label,select,input', 'control'], ['pre,code', 'code'], ['h1', 'h1'], ['h2', 'h2'], ['h3', 'h3'], ['.lede', 'lede'], ['figcaption,caption,th', 'caption']];
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, at = node.parentElement;
    if (!node.data.trim() || at.closest('script,style,[hidden]') || !shown(at)) continue;
    const { fontSize, fontWeight, fontFamily, fill, color } = look(at);
    const place = places.find(([selector]) => at.closest(selector))?.[1] ?? 'text';
    const one = { place, size: +(parseFloat(fontSize) / rem).toFixed(4), weight: +fontWeight,
      family: fontFamily.split(',')[0].replace(/['"]/g, ''), colour: colour(at.closest('svg') ? fill : color), text: node.data.trim().slice(0, 40) };
    const role = at.closest('[class*=r-]');
    const key = JSON.stringify([one.place, one.size, one.weight, one.family, one.colour, /\d/.test(one.text), /[A-Za-zΑ-ω]/.test(one.text), role?.className]);
    if (!texts.has(key)) texts.set(key, { ...one, role: role ? words(role) : '' });
  }
  const sides = ['Top', 'Right', 'Bottom', 'Left'];
  const every = all('*');
  const framed = every.filter(at => !at.matches('input,select,button,textarea') && sides.every(s => parseFloat(look(at)[`border${s}Width`]) > 0));
  const decorated = every.filter(at => look(at).boxShadow !== 'none' || look(at).backgroundImage !== 'none' || parseFloat(look(at).borderTopLeftRadius) > 4);
  const ends = at => { const range = document.createRange(); range.selectNodeContents(at); const b = range.getBoundingClientRect(); return [b.left, b.right]; };
  const cross = ([x, y, wide, high], [u, v, broad, tall]) => x < u + broad - 1 && u < x + wide - 1 && y < v + tall - 1 && v < y + high - 1;
  const labels = all('figcaption,.forms label,caption').map(at => [words(at), box(at)]);
  const inner = at => at.firstElementChild ? box(at.firstElementChild) : [ends(at)[0], 0, ends(at)[1] - ends(at)[0], 0];
  return {
    rem, width: innerWidth, wide: root.scrollWidth - innerWidth, variables, texts: [...texts.values()],
    paper: colour(look(document.body).backgroundColor), page: box(page), padding: parseFloat(look(page).paddingLeft) / rem,
    fonts: [...document.fonts].map(font => [font.family.replace(/['"]/g, ''), font.weight, font.status]),
    framed: framed.map(at => at.className || at.tagName), decorated: decorated.map(at => at.className || at.tagName),
    icons: all('img,i[class],canvas').length, titles: all('h2').map(words), ledes: all('.lede').map(words),
    steps: all('.step[id^=step]').map(at => ({ id: at.id, box: box(at), scroll: parseFloat(look(at).scrollMarginTop) / rem })),
    main: all('.sa-main').map(box), side: all('.sa-side:not(.why)').map(box), gap: all('.step').map(at => parseFloat(look(at).columnGap) / rem)[0] ?? 0,
    nav: all('.steps a').map(at => ({ text: at.innerText.replace(/\s+/g, ' ').trim(), line: parseFloat(look(at).borderBottomWidth), colour: colour(look(at).color),
      under: colour(look(at).borderBottomColor), current: at.ariaCurrent === 'step', box: box(at) })),
    header: box(document.querySelector('header') ?? page), ends: all('.ends button').map(words),
    matrices: all('mtable').map(at => ({ box: box(at), input: Boolean(at.closest('.large')), roomy: Boolean(at.closest('.roomy')), size: parseFloat(look(at).fontSize) / rem,
      fences: [...at.parentElement.children].filter(x => x.matches('mo')).map(box), display: look(at.closest('math')).display,
      columns: [...(at.rows ?? at.querySelectorAll('mtr'))].map(row => [...row.children].map(x => [box(x), inner(x), words(x), x.tabIndex])) })),
    fractions: all('mfrac').map(at => ({ size: parseFloat(look(at.firstElementChild).fontSize) / rem, style: look(at).mathStyle, cell: Boolean(at.closest('mtd')),
      around: parseFloat(look(at).fontSize) / rem, first: words(at.firstElementChild), whole: box(at), parts: [...at.children].map(box) })),
    bold: all('[mathvariant=bold],mfenced,menclose,[columnalign]').length, scripts: all('msub,msup').map(at => [...at.children].map(x => parseFloat(look(x).fontSize))),
    roots: all('msqrt').map(at => [box(at), box(at.firstElementChild)]),
    operators: all('math mo').map(words), functions: all('math mi').map(words), unnamed: all('math:not([alttext])').map(words),
    forms: all('.forms').filter(at => at.querySelector('label')).map(at => [...at.querySelectorAll('input')].map(x => ({ form: x.dataset.form, on: x.checked,
      text: words(x.nextElementSibling), colour: colour(look(x.nextElementSibling).color), under: colour(look(x.nextElementSibling).borderBottomColor) }))),
    switches: all('.forms').map(at => ({ shown: all('.form', at).length, labels: at.querySelectorAll('label').length, fractions: at.querySelectorAll('mfrac').length,
      names: all('.said', at).map(words), values: [...at.querySelectorAll('[data-t]')].every(x => /^−?\d+$/.test(x.dataset.t)) })),
    heat: all('.heat tbody tr').map(row => ({ cells: [...row.querySelectorAll('td')].map(at => ({ background: colour(look(at).backgroundColor), colour: colour(look(at).color),
      exact: at.dataset.t, small: words(at.querySelector('small') ?? at), place: at.dataset.c })), total: words(row.lastElementChild) })),
    spacing: all('.heat').map(at => look(at).borderSpacing),
    arrows: all('.arrows svg').map(svg => ({ said: svg.getAttribute('aria-label'), lines: [...svg.querySelectorAll('path[stroke]')].map(at =>
      ({ wide: parseFloat(look(at).strokeWidth), dotted: look(at).strokeDasharray !== 'none' })) })),
    grades: all('.grade').map(at => ({ tag: at.tagName, text: words(at.querySelector('summary')), open: at.open, inside: words(at.querySelector('span')),
      colour: colour(look(at.querySelector('summary')).color), line: look(at.querySelector('summary')).textDecorationStyle })),
    touching: all('summary').flatMap(at => labels.filter(([, other]) => cross(box(at), other)).map(([other]) => `${words(at)} touches ${other}`)),
    differences: all('.differences').map(at => ({ heads: all('th', at).map(words), aligned: all('tbody td', at).map(x => look(x).textAlign), wide: box(at)[2] })),
    where: all('.where').map(at => ({ box: box(at), text: words(at), live: at.ariaLive, position: look(at.closest('.bar')).position })),
    marked: all('.at').map(at => [look(at).outlineStyle, parseFloat(look(at).outlineWidth), at.dataset.c]),
    sources: all('.from').map(at => [colour(look(at).backgroundColor), at.dataset.c]),
    layout: all('mtable,table,h2,figure').map(box), copies: page.querySelectorAll('.copy').length, arrays: page.querySelectorAll('figure:has(.form), [data-tex]').length,
    small: all('button,summary,nav a,.forms label,[role=button]').filter(at => box(at)[3] < 24 && !at.matches('.copy,.why summary')).map(words),
    pictures: all('svg').filter(at => !at.closest('.arrows')).map(at => ({ view: at.getAttribute('viewBox'), title: at.querySelector('title')?.textContent ?? '',
      desc: at.querySelector('desc')?.textContent ?? '', gradients: at.querySelectorAll('linearGradient,radialGradient,filter').length,
      legends: at.querySelectorAll('[class*=legend]').length, frames: at.querySelectorAll('rect[stroke]:not([fill])').length,
      words: words(at), series: [...at.querySelectorAll('path,line,polyline,circle')].filter(x => look(x).stroke !== 'none').map(x =>
        [colour(look(x).stroke), `${x.tagName} ${look(x).strokeDasharray} ${look(x).strokeWidth}`, x.getAttribute('d')]),
      letters: [...at.querySelectorAll('text')].filter(shown).map(x => box(x)[3] && parseFloat(look(x).fontSize) * (box(at)[2] / at.viewBox.baseVal.width)) })),
    box: Object.fromEntries(['.landing-words', '.landing-picture', '.landing-three', 'h1'].map(x => [x, all(x, document).map(box)[0] ?? null])),
    questions: all('.landing-three .rubric', document).map(at => [words(at), box(at)]),
  };
}
