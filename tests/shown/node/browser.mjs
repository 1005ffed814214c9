// node browser.mjs chrome|firefox PATH WISH[@DEVICE] PAGE…: what a browser makes of each page, a line of JSON for each.
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';
import { facts } from './facts.mjs';

const [kind, executablePath, wished, ...paths] = process.argv.slice(2), [wish, only] = wished.split('@');
const WIDTHS = { desktop: 1200, phone: 390 };

// A page as it opens, with what went wrong on it, and what it asked for.
async function open(browser, path, width) {
  const page = await browser.newPage(), wrong = [], asked = new Set();
  page.setDefaultTimeout(0);
  // Firefox counts the parts of a formula while it still reads the page; they are counted below, when all are there.
  const report = text => { if (!/Incorrect number of children/.test(text)) wrong.push(text); };
  page.on('pageerror', error => report(String(error)));
  page.on('console', line => { if (line.type() === 'error') report(line.text()); });
  page.on('request', request => asked.add(request.url()));
  await page.setViewport({ width, height: 900 });
  const [file, hash = ''] = path.split('#');
  await page.goto(`${pathToFileURL(file).href}#${hash}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  wrong.push(...await page.evaluate(() => [...document.querySelectorAll('mfrac,msub,msup,msubsup')].filter(
    at => at.children.length !== (at.localName === 'msubsup' ? 3 : 2)).map(at => `${at.localName} with ${at.children.length} parts`)));
  return { page, opened: { wrong, asked: [...asked], wide } };
}

// Boxes [x, y, width, height] of the formulas that are seen, and of the parts of fractions, matrices and roots.
const boxes = page => page.evaluate(() => {
  const box = at => { const b = at.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; };
  const seen = [...document.querySelectorAll('math')].filter(at => at.checkVisibility());
  const parts = name => seen.flatMap(at => [...at.querySelectorAll(name)].map(x => [x, ...x.children].map(box)));
  return { formulas: seen.map(box), fractions: parts('mfrac'), matrices: parts('mtable'), roots: parts('msqrt') };
});

// What is seen of the page: sections, forms of arrays, cells that are framed, the line that says where a number is from.
const seen = page => page.evaluate(() => {
  const all = selector => [...document.querySelectorAll(selector)].filter(at => at.checkVisibility());
  return {
    sections: all('.step[id^=step]').map(at => at.id), hash: location.hash, current: all('[aria-current]').length,
    forms: [...new Set(all('.forms input:checked').map(at => at.dataset.form))],
    framed: all('.at').map(at => at.dataset.c), from: [...new Set(all('.from').map(at => at.dataset.c))],
    where: document.querySelector('.where')?.textContent ?? '', theme: document.documentElement.dataset.theme ?? '',
  };
});

// What a reader does on a walk, with keys alone.
async function handled(page) {
  const found = {}, press = async (name, ...keys) => {
    for (const key of keys) await page.keyboard.press(key);
    found[name] = await seen(page);
  };
  found.opened = await seen(page);
  await press('next', 'ArrowRight');
  await press('fifth', 'ArrowRight', 'ArrowRight', 'ArrowRight');
  await press('decimal', 'd');
  await press('printed', 'p');
  await press('exact', 'e');
  found.copied = await page.evaluate(() => {
    let copied = '';
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: async text => { copied = text; } } });
    document.querySelector('#step-5 figure[data-array=weights] .copy').click();
    return copied;
  });
  await page.$eval('#step-5 .heat [data-c]', at => at.previousElementSibling.setAttribute('tabindex', -1));
  await page.$eval('#step-5 .heat th[scope=row]', at => at.focus());
  await press('cell', 'Tab');
  await press('beside', 'ArrowRight');
  await press('left', 'Escape', 'ArrowLeft');
  await press('dark', 't');
  await page.evaluate(() => { location.hash = '#step-8'; });
  await new Promise(done => setTimeout(done, 50));
  found.linked = await seen(page);
  return found;
}

// A page and a page of the site differ in where they say their theme.
const theme = (page, name) => page.evaluate(to => {
  for (const at of [document.documentElement, document.body]) at.dataset.theme = to;
}, name);

// All of a page, in light and dark; and at a step that a link names, with a cell that is pointed at.
async function looked(page) {
  const found = {}, record = async name => { found[name] = await page.evaluate(facts); };
  const one = on => page.evaluate(yes => document.querySelector('.symattn:has(.step)')?.classList.toggle('one', yes), on);
  const walk = await page.$eval('body', at => Boolean(at.querySelector('.symattn.one')));
  await one(false);
  await record('whole');
  await theme(page, 'dark');
  await record('dark');
  if (!walk) return found;
  await theme(page, 'light');
  await page.evaluate(() => { location.hash = '#step-5'; });
  await one(true);
  await new Promise(done => setTimeout(done, 50));
  await record('fifth');
  await (await page.$('#step-5 .heat td[data-c]')).hover();
  await record('pointed');
  await page.keyboard.press('d');
  await record('decimal');
  return found;
}

// The screen in light and dark, as pictures beside the page.
async function screens(page, path, device) {
  const pictures = [];
  for (const name of ['light', 'dark']) {
    await theme(page, name);
    const file = `${path.replace(/\.html#?/, '-').replace(/-$/, '')}-${device}-${name}.png`;
    await page.screenshot({ path: file, optimizeForSpeed: false });
    pictures.push(file);
  }
  return { pictures };
}

// The exact numbers that the page to explore shows, by their places.
const numbers = page => page.evaluate(() => Object.fromEntries(
  [...document.querySelectorAll('.step [data-t]')].map(at => [at.dataset.c, [at.dataset.t, at.dataset.d ?? '']])));

// Numbers whose weights have up to 10¹² digits before their first nonzero one.
const LARGE = ['0', '999', '9999', '1000000', '-1000000', '1/3'];

// Until the worker has answered the last edit.
const settled = page => page.waitForSelector('.symattn[aria-busy=false]');

// What it opens with, after a number has been typed, and in a page that opens the link.
async function explored(page) {
  await settled(page);
  const found = { opened: await numbers(page) };
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate(() => document.activeElement.dataset.at === 'x 0 0')) break;
  }
  await page.evaluate(() => document.activeElement.select());
  await page.keyboard.type('3/2');
  await settled(page);
  found.typed = await numbers(page);
  found.beside = await page.$eval('.now', at => {
    const [box, edit] = [at, document.activeElement].map(x => x.getBoundingClientRect());
    return { seen: box.top < innerHeight && box.bottom > 0, apart: Math.abs(box.top - edit.top), changed: at.querySelectorAll('.new').length };
  });
  found.large = {};
  for (const entry of LARGE) {
    await page.evaluate(() => document.activeElement.select());
    await page.keyboard.type(entry);
    await settled(page);
    found.large[entry] = await numbers(page);
  }
  await page.evaluate(() => document.activeElement.select());
  await page.keyboard.type('3/2');
  await settled(page);
  await page.keyboard.type('/');
  found.message = await page.$eval('.wrong', at => at.textContent);
  found.kept = await numbers(page);
  const other = await page.browser().newPage();
  other.setDefaultTimeout(0);
  await other.goto(page.url());
  await settled(other);
  found.linked = await numbers(other);
  await other.close();
  return found;
}

const args = kind === 'chrome' ? ['--no-sandbox', '--disable-dev-shm-usage'] : [];
const browser = await puppeteer.launch({ browser: kind, executablePath, args, timeout: 0, protocolTimeout: 0 });
for (const path of paths) {
  for (const [device, width] of Object.entries(WIDTHS).filter(([name]) => !only || name === only)) {
    const { page, opened } = await open(browser, path, width);
    const more = { read: boxes, explore: explored, look: looked, handle: handled,
      screen: p => screens(p, path, device),
      print: async p => { await p.pdf({ path: `${path}.${device}.pdf`, format: 'A4' }); return {}; } }[wish];
    const result = await more(page);
    console.log(JSON.stringify({ path, device, ...opened, ...result }));
    await page.close();
  }
}
await browser.close();
