// node browser.mjs chrome|firefox PATH read|explore PAGE…: what a browser makes of each page, a line of JSON for each.
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';

const [kind, executablePath, wish, ...paths] = process.argv.slice(2);
const WIDTHS = { desktop: 1200, phone: 390 };

// A page as it opens, with what went wrong on it, and what it asked for.
async function open(browser, path, width) {
  const page = await browser.newPage(), wrong = [], asked = new Set();
  page.on('pageerror', error => wrong.push(String(error)));
  page.on('console', line => { if (line.type() === 'error') wrong.push(line.text()); });
  page.on('request', request => asked.add(request.url()));
  await page.setViewport({ width, height: 900 });
  await page.goto(pathToFileURL(path).href);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  return { page, told: { wrong, asked: [...asked], wide } };
}

// Boxes [x, y, width, height] of the formulas that are seen, and of the parts of fractions, matrices and roots.
const boxes = page => page.evaluate(() => {
  const box = at => { const b = at.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; };
  const seen = [...document.querySelectorAll('math')].filter(at => at.checkVisibility());
  const parts = name => seen.flatMap(at => [...at.querySelectorAll(name)].map(x => [x, ...x.children].map(box)));
  return { formulas: seen.map(box), fractions: parts('mfrac'), matrices: parts('mtable'), roots: parts('msqrt') };
});

// What a reader can do on the page: choose the form of an array, close and open a part, copy a formula.
async function handled(page) {
  const forms = () => page.evaluate(() => {
    const at = [...document.querySelectorAll('.forms')].find(x => x.querySelectorAll('.form').length > 1);
    return at ? [...at.querySelectorAll('.form')].map(x => x.checkVisibility()) : [];
  });
  const part = () => page.$eval('details:has(> summary > h2)', at => at.lastElementChild.checkVisibility());
  const found = { forms: [await forms()], part: [await part()] };
  if (found.forms[0].length) {
    await page.click('.forms label:nth-of-type(2)');
    found.forms.push(await forms());
  }
  for (let i = 0; i < 2; i++) {
    await page.click('details > summary > h2');
    found.part.push(await part());
  }
  found.copied = await page.evaluate(() => document.querySelectorAll('[data-tex]').length);
  found.buttons = await page.evaluate(() => document.querySelectorAll('button.copy').length);
  return found;
}

// What is chosen, which walk is seen, and its words.
const state = page => page.evaluate(() => {
  const seen = [...document.querySelectorAll('[data-choice]')].filter(at => at.checkVisibility());
  return {
    chosen: [...new FormData(document.querySelector('.choose')).values()].join(' '),
    focus: document.activeElement.name ?? '',
    seen: seen.map(at => at.dataset.choice),
    text: seen.map(at => at.textContent).join(''),
    live: seen.every(at => at.ariaLive === 'polite'),
  };
});

// By keys alone through every choice of every row of buttons.
async function explored(page) {
  const states = [await state(page)];
  const rows = await page.$$eval('.choose fieldset', all => all.map(at => at.querySelectorAll('input').length));
  await page.keyboard.press('Tab');
  for (const values of rows) {
    for (let i = 1; i < values; i++) {
      await page.keyboard.press('ArrowRight');
      states.push(await state(page));
    }
    await page.keyboard.press('Tab');
  }
  return { states };
}

const args = kind === 'chrome' ? ['--no-sandbox', '--disable-dev-shm-usage'] : [];
const browser = await puppeteer.launch({ browser: kind, executablePath, args });
for (const path of paths) {
  for (const [device, width] of Object.entries(WIDTHS)) {
    const { page, told } = await open(browser, path, width);
    const more = wish === 'explore' ? await explored(page) : { ...await boxes(page), ...await handled(page) };
    console.log(JSON.stringify({ path, device, ...told, ...more }));
    await page.close();
  }
}
await browser.close();
